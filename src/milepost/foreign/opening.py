"""Finds out which library wrote a file or directory, and opens it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import Enum
from typing import Final

from milepost.bundle import index_path
from milepost.collector import collection_paused
from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.foreign import orbax, orbax_layout
from milepost.foreign.reader import ForeignReader
from milepost.foreign.stored import ForeignFile
from milepost.storage import LocalStorage, Storage
from milepost.storage.checked import unchecked

_IN_DIRECTORIES: Final = ("model.safetensors", "pytorch_model.bin")
"""The names that Hugging Face's libraries have for the file of a model. The name of its index ends in `_INDEX` too."""
_MOST_SHARED: Final = 1 << 30
_MOST_TIMES: Final = 16
"""All tensors together may take `_MOST_SHARED` bytes, plus this many times the size of the file."""
_INDEX: Final = ".index.json"
_REMEDY: Final = "copy or download it again, or write it again with the library that made it"


@collection_paused()
def open_foreign(storage: Storage, path: str | os.PathLike[str]) -> ForeignReader | None:
    """Opens a file or directory of another library.

    Args:
        storage: Where it is.
        path: A file of PyTorch, safetensors, NumPy (``.npz``), Flax or Keras, the index of a model in several such files, a directory that holds one of
            these, or a directory of torch.distributed.checkpoint or Orbax.

    Returns:
        The open file, or None if it is not one of these.

    Raises:
        CheckpointNotFoundError: A file that an index names is missing.
        CorruptCheckpointError: The file is damaged.
        UnsupportedError: milepost does not read files of this format, or needs a library that is not installed.
    """
    path = os.fspath(path)
    if storage.is_file(index_path(path)):
        return None
    try:
        opened = _open_file(storage, path) if storage.is_file(path) else _open_directory(storage, path)
        if opened is None:
            return None
        reader = ForeignReader(opened)
    except CorruptCheckpointError as error:
        raise error.with_context(remedy=_REMEDY) from None
    if not isinstance(opened, orbax.OrbaxDirectory):  # their tensors share no storage, and may be compressed
        _check_sharing(storage, reader)
    return reader


def _check_sharing(storage: Storage, reader: ForeignReader) -> None:
    """Checks that tensors do not take far more memory than the file has bytes. That is possible if they share their storage."""
    wanted = reader.stored_bytes
    if wanted <= _MOST_SHARED:
        return
    size = 0
    for path in reader.shard_paths:
        file = storage.open(path)
        size += file.size
        file.close()
    if wanted > _MOST_SHARED + _MOST_TIMES * size:
        reader.close()
        raise UnsupportedError(
            "tensors that share their storage would take far more memory than the file has bytes",
            file=reader.prefix,
            expected=f"at most {_MOST_SHARED + _MOST_TIMES * size} bytes in all tensors",
            found=f"{wanted} bytes, in a file of {size}",
            remedy="save a state in which each tensor is there once",
        )


def _open_file(storage: Storage, path: str) -> ForeignFile | None:
    if path.endswith(_INDEX):
        from milepost.foreign import shards

        return shards.ShardedModel(storage.open(path), lambda shard: _open_shard(storage, shard))
    return _open_shard(storage, path)


def _open_shard(storage: Storage, path: str) -> ForeignFile | None:
    # Every program imports this module, and few open such files.
    from milepost.foreign import (
        flax_files,
        keras_files,
        kinds,
        npz_files,
        safetensors,
        torch_archive,
        torch_distributed,
        torch_legacy,
        zip_directory,
    )

    torch_distributed.refuse(path)
    file = storage.open(path)
    archive = zip_directory.Archive(file)
    try:
        if keras_files.looks_like(archive):
            return keras_files.KerasFile(file)
        if torch_archive.looks_like(archive):
            return torch_archive.TorchArchive(archive)
        if npz_files.looks_like(archive):
            return npz_files.NpzFile(archive)
        if torch_legacy.looks_like(file):
            return torch_legacy.LegacyTorchFile(file)
        if safetensors.looks_like(file):
            return safetensors.SafetensorsFile(file)
        kinds.refuse(file)
        if flax_files.looks_like(file):
            return flax_files.FlaxFile(file)
        if path.endswith(safetensors.SUFFIX):
            return safetensors.SafetensorsFile(file)
        kinds.refuse_unknown(file)
    except BaseException:
        file.close()
        raise
    file.close()
    return None


def _open_directory(storage: Storage, path: str) -> ForeignFile | None:
    kind, found = _kind_of(storage, path)
    if kind is _Directory.MODEL:
        return _open_file(storage, found)
    if kind is _Directory.DISTRIBUTED:
        from milepost.foreign import torch_distributed

        return torch_distributed.DistributedDirectory(storage, path)
    return orbax.OrbaxDirectory(path) if kind is _Directory.ORBAX else None


def is_item_of_orbax(storage: Storage, path: str) -> bool:
    """Whether a directory is an item of Orbax, in which a file `checkpoint` is not a state file."""
    return _is_local_directory(storage, path) and orbax_layout.is_item(path)


def steps_of_orbax(storage: Storage, path: str) -> list[str]:
    """The steps in the directory of a manager of Orbax. An empty list if a path is anything else, such as one step."""
    return orbax_layout.steps_in(path) if _kind_of(storage, path)[0] is _Directory.ORBAX else []


def newest_of_orbax(storage: Storage, path: str) -> str:
    """The newest complete step, if a path is the directory of a manager of Orbax; otherwise the path itself."""
    steps = steps_of_orbax(storage, path)
    return steps[-1] if steps and all(map(orbax_layout.is_of_step, steps)) else path


def needs_orbax(storage: Storage, path: str) -> bool:
    """Whether `open_foreign` imports Orbax to open a directory, which takes seconds.

    Raises:
        CorruptCheckpointError: Orbax has not finished the directory, as its name says.
    """
    if _kind_of(storage, path)[0] is not _Directory.ORBAX:
        return False
    if (unfinished := orbax_layout.unfinished_error(path)) is not None:
        raise unfinished
    return True


def is_foreign_directory(storage: Storage, path: str) -> bool:
    """Whether `open_foreign` opens a directory."""
    return _kind_of(storage, path)[0] is not _Directory.OTHER


def is_one_of_directories(storage: Storage, path: str) -> bool:
    """Whether a directory as a whole is one checkpoint of DCP, or one item or step of Orbax, finished or not."""
    kind, _ = _kind_of(storage, path)
    return kind is _Directory.DISTRIBUTED or (kind is _Directory.ORBAX and not orbax_layout.steps_in(path))


def files_of_model(storage: Storage, path: str) -> list[str]:
    """The files of a model of Hugging Face that are there, its index among them. Empty if a path is not one.

    Args:
        storage: Where it is.
        path: The index, or the directory that holds it or the only file.
    """
    found = path if path.endswith(_INDEX) else _model_in(storage, path)
    if found is None or not found.endswith(_INDEX):
        return [] if found is None else [found]
    directory, name = os.path.split(found)
    listed = [os.path.join(directory, each) for each in storage.list(directory) if is_part_of_model(each, [name])]
    return [found, *listed]


def is_part_of_model(name: str, indexes: Iterable[str]) -> bool:
    """Whether the name of a file is that of one of several files of a model, whose index is one of these.

    Example:
        >>> is_part_of_model("model-00001-of-00002.safetensors", ["model.safetensors.index.json"])
        True
    """
    return any(name.startswith(each.removesuffix(_INDEX).rpartition(".")[0] + "-") for each in indexes)


class _Directory(Enum):
    """What a path is, if it is a directory."""

    MODEL = "a directory with the file, or the index, of a model"
    DISTRIBUTED = "a directory of torch.distributed.checkpoint"
    ORBAX = "a directory of Orbax"
    OTHER = "anything else"


def _kind_of(storage: Storage, path: str) -> tuple[_Directory, str]:
    """What a path is, and the path to open. If a directory is of several kinds, the first in the order of `_Directory` counts."""
    inside = _model_in(storage, path)
    if inside is not None:
        return _Directory.MODEL, inside
    if _is_distributed(storage, path):
        return _Directory.DISTRIBUTED, path
    is_orbax = _is_local_directory(storage, path) and orbax_layout.looks_like(path)
    return _Directory.ORBAX if is_orbax else _Directory.OTHER, path


def _model_in(storage: Storage, path: str) -> str | None:
    """The file, or the index, of the model in a directory."""
    if not storage.is_directory(path):
        return None
    candidates = [os.path.join(path, name) for name in _IN_DIRECTORIES]
    candidates = [each for name in candidates for each in (name + _INDEX, name)]
    return next((each for each in candidates if storage.is_file(each)), None)


def _is_distributed(storage: Storage, path: str) -> bool:
    from milepost.foreign import torch_distributed

    return storage.is_directory(path) and torch_distributed.looks_like(storage, path)


def _is_local_directory(storage: Storage, path: str) -> bool:
    return isinstance(unchecked(storage), LocalStorage) and os.path.isdir(path)
