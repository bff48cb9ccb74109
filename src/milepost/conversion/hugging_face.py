"""Writes the model of a checkpoint as a directory that ``from_pretrained`` of Hugging Face's libraries opens.

The names in the new files are those of the library itself: its ``save_pretrained`` gets the values of the checkpoint. So weights that the
library lays out otherwise in memory have the layout that it gives to files, and tied weights are written once.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from milepost.bundle import BundleReader
from milepost.checkpoint.output_files import write_files
from milepost.checkpoint.reader import resolve
from milepost.checkpoint.short_names import name_of
from milepost.conversion.base_values import levels_of, values_of_base
from milepost.conversion.conversion import PathLike, convert
from milepost.engine.arguments import wrong
from milepost.engine.left_out import NOTHING, LeftOut
from milepost.engine.options import CheckpointOptions, resolved, storage_of, takes_options
from milepost.errors import CheckpointExistsError, MilepostError, MismatchError, UnmatchedError, UnsupportedError
from milepost.graph.frameworks import imported
from milepost.restoring.load import open_any
from milepost.series.files import read_files
from milepost.series.metadata import read_metadata
from milepost.storage.output_file import replaced_directory
from milepost.storage.paths import plain_path

_CONFIGS: Final = ("config.json", "adapter_config.json")
_TOKENIZER: Final = "tokenizer/"
"""The beginning of the names of files that a manager has saved as those of the tokenizer."""
_WEIGHTS: Final = ".milepost-weights.pt"
_MOST_LISTED: Final = 5
_ASKED: Final = 3
"""The names of the model that are looked for in the checkpoint to find where the model is. All names are compared after that."""


@takes_options("restore")
def export_hf(
    path: PathLike,
    out: PathLike,
    *,
    model: Any,
    tokenizer: Any = None,
    name: str | None = None,
    cast: Any = None,
    exact_names: bool = False,
    max_shard_size: int | None = None,
    overwrite: bool = False,
    options: CheckpointOptions | None = None,
) -> list[str]:
    """Writes the model of a checkpoint as a directory that ``from_pretrained``, and so an inference server, opens without a network.

    The model gives its configuration and its class. Its values do not change, and it may be on PyTorch's device ``meta``. The values are
    those of the checkpoint. While this runs, the disk of ``out`` holds them twice.

    Args:
        path: Any path that `milepost.Checkpoint.restore` accepts, or a directory, whose latest checkpoint is read.
        out: The directory to write, on this machine. It appears when it is whole.
        model: A model of transformers, or of another library whose models have ``state_dict()`` and ``save_pretrained(directory, state_dict=)``,
            such as PEFT. If the checkpoint was saved with ``CheckpointOptions(base=...)``, the model has the base, whose values are compared with it.
        tokenizer: What else the directory is to hold: an object with ``save_pretrained``, such as a tokenizer or a processor; the path of a
            directory, whose files are copied; or a list of these. By default, the files that a manager has saved with the checkpoint as
            ``files={"tokenizer": ...}``.
        name: The name of the model in the checkpoint, such as ``"model"``. By default the model is looked for by the names of its values.
        cast: The element type that floating-point numbers get, such as ``"bfloat16"``. The configuration says it, too.
        exact_names: Whether the file has the names of ``state_dict()``, instead of those that the library gives to files.
        max_shard_size: Write several files of at most so many bytes of tensors.
        overwrite: Whether a directory of the same kind is replaced.
        options: How to read: where the checkpoint is, and who is told how far this is.

    Returns:
        The names of the files in the directory.

    Raises:
        CheckpointExistsError: There is something under the path ``out``.
        CheckpointNotFoundError: There is no such checkpoint.
        CorruptCheckpointError: The checkpoint is damaged.
        MismatchError: A value has another shape than in the model, ``cast`` cannot hold it, or the base is another one.
        StorageError: A file cannot be written.
        UnmatchedError: The checkpoint lacks values of the model, has others below its name, or has several such models.
        UnsupportedError: The model cannot be saved in this way.

    Example:
        >>> import milepost, tempfile
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2))
        >>> directory = tempfile.mkdtemp()
        >>> path = milepost.Checkpoint(model=model).write(directory + "/ckpt")
        >>> milepost.export_hf(path, directory + "/served", model=model)
        ['config.json', 'generation_config.json', 'model.safetensors']
    """
    target, source = plain_path(out), plain_path(path)
    torch = imported("torch")
    if torch is None or not all(callable(getattr(model, each, None)) for each in ("state_dict", "save_pretrained")):
        raise wrong("model", model, "a model of PyTorch with save_pretrained(), such as one of transformers")
    shapes = {each: tuple(value.shape) for each, value in model.state_dict().items() if hasattr(value, "shape")}
    root = _where(source, shapes, options) if name is None else name
    part: dict[str, Any] = {"separator": ".", "dtype": cast, "options": options}
    if root:
        part |= {"only": root, "rename": {root: ""}}
    if os.path.lexists(target) and not overwrite and not _is_empty(target):
        raise CheckpointExistsError(
            "this directory exists, and is not replaced unless you say so",
            file=target,
            remedy="pass overwrite=True, or another path",
        )
    with replaced_directory(target, lambda present: _is_empty(present) or _is_pretrained(present)) as directory:
        weights = os.path.join(directory, _WEIGHTS)
        convert(source, weights, **part)
        state = torch.load(weights, mmap=True, weights_only=True)
        of_base = _of_base(model, state, source, root, options)
        if of_base and exact_names:
            raise wrong("exact_names", True, "False, since the base of the checkpoint has values that it lacks")
        state |= {each: _cast(torch, each, value.detach(), cast) for each, value in of_base.items()}
        _check(source, root, state, shapes)
        _save(model, directory, state, max_shard_size)
        del state
        os.remove(weights)
        if exact_names:
            for each in _weights_in(directory):
                os.remove(each)
            convert(
                source,
                os.path.join(directory, "model.safetensors"),
                max_shard_size=max_shard_size,
                metadata={"format": "pt"},
                **part,
            )
        if cast is not None:
            _say_type(directory, cast)
        for each in tokenizer if isinstance(tokenizer, (list, tuple)) else [tokenizer]:
            _add(directory, each)
        if tokenizer is None:
            with tempfile.TemporaryDirectory() as saved:
                write_files(_saved_tokenizer(source, options), saved)
                _add(directory, saved)
        return sorted(os.listdir(directory))


def _where(path: str, shapes: Mapping[str, Any], options: CheckpointOptions | None) -> str:
    """The name of the model in a checkpoint, by the names of its values."""
    files = storage_of(resolved(options))
    with open_any(files, resolve(path, files)) as reader:
        keys = [*reader.keys(), *_left_out(reader).values]
    saved = {levels_of(name_of(key)): name_of(key) for key in keys}
    wanted = [levels_of(each) for each in shapes]
    roots = Counter[str]()
    for each in sorted(wanted, key=len)[-_ASKED:]:
        roots.update(
            name[: len(levels) - len(each)].rstrip("/.")
            for levels, name in saved.items()
            if f"/{levels}".endswith(f"/{each}")
        )
    counts = {
        root: sum(f"{levels_of(root)}/{each}" in saved if root else each in saved for each in wanted) for root in roots
    }
    best = max(counts.values(), default=0)
    found = [root for root, count in counts.items() if count == best]
    if len(found) != 1:
        raise UnmatchedError(
            "the model is not found in this checkpoint by the names of its values",
            file=path,
            expected=f"one object with values such as {', '.join(list(shapes)[:_MOST_LISTED])}",
            found=f"{len(found)} such objects: {', '.join(sorted(found))}" if found else "none",
            remedy="pass the name of the model in the checkpoint, as in name='model'; milepost show lists the names",
        )
    return found[0]


def _left_out(reader: BundleReader) -> LeftOut:
    return LeftOut.parsed(read_metadata(reader).left_out) if reader.origin.is_checkpoint else NOTHING


def _of_base(
    model: Any, state: Mapping[str, Any], path: str, root: str, options: CheckpointOptions | None
) -> dict[str, Any]:
    """The values of the model that the checkpoint lacks because its base has them, by name."""
    settings = resolved(options)
    files = storage_of(settings)
    with open_any(files, resolve(path, files)) as reader:
        left_out = _left_out(reader)
    if not left_out.digests:
        return {}
    missing = {name: each for name, each in model.state_dict(keep_vars=True).items() if name not in state}
    return values_of_base(model, missing, left_out, root, path, settings)


def _cast(torch: Any, name: str, value: Any, cast: Any) -> Any:
    """A live value in the element type that floating-point numbers get.

    Raises:
        MismatchError: A finite number would be lost.
    """
    if cast is None or not value.is_floating_point():
        return value
    converted = value.to(getattr(torch, str(cast).rpartition(".")[2]))
    if not torch.equal(torch.isfinite(value), torch.isfinite(converted)):
        raise MismatchError(
            "a number cannot be converted to this element type, so nothing was written",
            key=name,
            expected=f"numbers that {cast} can hold",
            remedy="pass a type that holds them, such as cast='bfloat16'",
        )
    return converted


def _check(path: str, root: str, state: Mapping[str, Any], shapes: Mapping[str, Any]) -> None:
    """Raises an error unless the values are those that the model has."""
    missing, unexpected = shapes.keys() - state.keys(), state.keys() - shapes.keys()
    if missing or unexpected:
        problem = (
            "the checkpoint lacks values of the model" if missing else "the checkpoint has other values than the model"
        )
        raise UnmatchedError(
            f"{problem}, so nothing was written",
            file=path,
            key=_listed(missing or unexpected),
            expected=f"{len(shapes)} values, those of the model's state_dict(), below {root!r}",
            found=f"{len(state)} values, {len(missing)} missing and {len(unexpected)} others",
            remedy="pass the model that was saved; if it has another name in the checkpoint, pass that as name=",
        )
    for name, shape in shapes.items():
        if tuple(state[name].shape) != shape:
            raise MismatchError(
                "a saved value has another shape than in the model, so nothing was written",
                file=path,
                key=name,
                expected=f"shape {list(shape)}, as in the model",
                found=f"shape {list(state[name].shape)}",
                remedy="make the model with the configuration with which it was trained",
            )


def _save(model: Any, directory: str, state: dict[str, Any], max_shard_size: int | None) -> None:
    more = {} if max_shard_size is None else {"max_shard_size": max_shard_size}
    try:
        model.save_pretrained(directory, state_dict=state, **more)
    except (MilepostError, OSError):
        raise
    except Exception as error:  # of the model's library, which may raise anything
        raise UnsupportedError(
            f"save_pretrained() of {type(model).__module__}.{type(model).__qualname__} has raised an error, so nothing was written",
            found=f"{type(error).__name__}: {error}",
            remedy="see whether the model can be saved by save_pretrained() alone",
        ) from error
    if not _weights_in(directory):
        raise UnsupportedError(
            f"save_pretrained() of {type(model).__module__}.{type(model).__qualname__} has written no weights",
            found=", ".join(each for each in sorted(os.listdir(directory)) if each != _WEIGHTS) or "no files",
        )


def _weights_in(directory: str) -> list[str]:
    """The files of weights that a library has written, with their index."""
    return [
        os.path.join(directory, each)
        for each in sorted(os.listdir(directory))
        if each.endswith((".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json"))
    ]


def _say_type(directory: str, cast: Any) -> None:
    """Writes the new element type into the configuration, which names that of the model."""
    path = os.path.join(directory, _CONFIGS[0])
    if not os.path.isfile(path):
        return
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    dtype = str(cast).rpartition(".")[2]
    for name in {"dtype", "torch_dtype"} & config.keys() or {"dtype"}:
        config[name] = dtype
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")


def _add(directory: str, part: Any) -> None:
    """Adds what belongs to a model beside its weights."""
    if part is None:
        return
    if callable(getattr(part, "save_pretrained", None)):
        part.save_pretrained(directory)
        return
    if not isinstance(part, (str, os.PathLike)) or not os.path.isdir(part):
        raise wrong("tokenizer", part, "an object with save_pretrained(), or the path of a directory")
    shutil.copytree(part, directory, dirs_exist_ok=True)


def _saved_tokenizer(path: str, options: CheckpointOptions | None) -> dict[str, bytes]:
    """The files of the tokenizer that were saved with a checkpoint, by their names in its directory."""
    files = storage_of(resolved(options))
    with open_any(files, resolve(path, files)) as reader:
        saved = read_files(reader)
    return {name.removeprefix(_TOKENIZER): data for name, data in saved.items() if name.startswith(_TOKENIZER)}


def _is_empty(path: str) -> bool:
    return os.path.isdir(path) and not os.listdir(path)


def _is_pretrained(path: str) -> bool:
    return any(os.path.isfile(os.path.join(path, each)) for each in _CONFIGS)


def _listed(names: Iterable[str]) -> str:
    first = sorted(names)
    more = f" and {len(first) - _MOST_LISTED} more" if len(first) > _MOST_LISTED else ""
    return ", ".join(first[:_MOST_LISTED]) + more
