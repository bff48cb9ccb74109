"""Finds out which library wrote a file or directory, and opens it."""

from __future__ import annotations

import os
from enum import Enum
from typing import Final

from milepost.bundle import index_path
from milepost.collector import collection_paused
from milepost.errors import CorruptCheckpointError, UnsupportedError, importing
from milepost.foreign.jax import orbax, orbax_layout
from milepost.foreign.model_directories import is_index, model_in, models_alone_in
from milepost.foreign.reader import ForeignReader
from milepost.foreign.stored import ForeignFile
from milepost.storage import LocalStorage, Storage
from milepost.storage.checked import unchecked

_MOST_SHARED: Final = 1 << 30
_MOST_TIMES: Final = 16
"""All tensors together may take `_MOST_SHARED` bytes, plus this many times the size of the file."""
_KERAS_INDEX: Final = ".weights.json"
_MOST_LISTED: Final = 5
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
    if is_index(path):
        with importing():
            from milepost.foreign import shards

        return shards.ShardedModel(storage.open(path), lambda shard: _open_shard(storage, shard))
    if path.endswith(_KERAS_INDEX):
        with importing():
            from milepost.foreign.keras import shards as keras_shards

        return keras_shards.KerasShards(storage.open(path), storage.open)
    return _open_shard(storage, path)


def _open_shard(storage: Storage, path: str) -> ForeignFile | None:
    # Every program imports this module, and few open such files.
    with importing():
        from milepost.foreign import kinds, npz_files, safetensors, zip_directory
        from milepost.foreign.jax import flax_files
        from milepost.foreign.keras import files as keras_files
        from milepost.foreign.pytorch import archive as torch_archive
        from milepost.foreign.pytorch import distributed as torch_distributed
        from milepost.foreign.pytorch import legacy as torch_legacy

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
    kind, model = _kind_of(storage, path)
    if kind is _Directory.MODEL:
        return _open_file(storage, model)
    if kind is _Directory.DISTRIBUTED:
        with importing():
            from milepost.foreign.pytorch import distributed as torch_distributed

        return torch_distributed.DistributedDirectory(storage, path)
    if kind is _Directory.ORBAX:
        return orbax.OrbaxDirectory(path)
    if kind is _Directory.MODELS:
        models = models_alone_in(storage, path)
        raise UnsupportedError(
            "this directory holds several models",
            file=path,
            expected="one model",
            found=", ".join(map(os.path.basename, models[:_MOST_LISTED])) + (", ..." if models[_MOST_LISTED:] else ""),
            remedy=f"pass one of them, such as {models[0]}",
        )
    return None


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


class _Directory(Enum):
    """What a path is, if it is a directory."""

    MODEL = "a directory with the file, or the index, of a model"
    DISTRIBUTED = "a directory of torch.distributed.checkpoint"
    ORBAX = "a directory of Orbax"
    MODELS = "a directory with several models of unusual names"
    OTHER = "anything else"


def _kind_of(storage: Storage, path: str) -> tuple[_Directory, str]:
    """What a path is, and the path to open. If a directory is of several kinds, the first in the order of `_Directory` counts."""
    inside = model_in(storage, path)
    if inside is not None:
        return _Directory.MODEL, inside
    if _is_distributed(storage, path):
        return _Directory.DISTRIBUTED, path
    if _is_local_directory(storage, path) and orbax_layout.looks_like(path):
        return _Directory.ORBAX, path
    models = models_alone_in(storage, path)
    if len(models) == 1:
        return _Directory.MODEL, models[0]
    return (_Directory.MODELS if models else _Directory.OTHER), path


def _is_distributed(storage: Storage, path: str) -> bool:
    with importing():
        from milepost.foreign.pytorch import distributed as torch_distributed

    return storage.is_directory(path) and torch_distributed.looks_like(storage, path)


def _is_local_directory(storage: Storage, path: str) -> bool:
    return isinstance(unchecked(storage), LocalStorage) and os.path.isdir(path)
