"""Finding out which library wrote a file or directory, and opening it."""

from __future__ import annotations

import os
from typing import Final

from milepost.bundle import index_path
from milepost.errors import UnsupportedError
from milepost.foreign import orbax
from milepost.foreign.reader import ForeignReader
from milepost.foreign.stored import Source
from milepost.storage import LocalStorage, Storage

_IN_DIRECTORIES: Final = ("model.safetensors", "pytorch_model.bin")
"""What Hugging Face's libraries call the file of a model, and, with `_INDEX` after it, its index."""
_MOST_SHARED: Final = 1 << 30
_MOST_TIMES: Final = 16
"""Bytes that all tensors may have together: so many, and the file's own so many times."""
_INDEX: Final = ".index.json"


def open_foreign(storage: Storage, path: str | os.PathLike[str]) -> ForeignReader | None:
    """Opens a file or directory of another library.

    Args:
        storage: Where it is.
        path: A file of PyTorch or safetensors, the index of one that is spread over several files, a directory with
            any of them, or a directory of Orbax's.

    Returns:
        The open file, or None if it is nothing of the kind.

    Raises:
        CheckpointNotFoundError: A file that an index names is missing.
        CorruptCheckpointError: It is damaged.
        UnsupportedError: It holds what milepost does not read, or needs a library that is not installed.
    """
    path = os.fspath(path)
    if storage.is_file(index_path(path)):
        return None
    source = _open_file(storage, path) if storage.is_file(path) else _open_directory(storage, path)
    if source is None:
        return None
    reader = ForeignReader(source)
    if not isinstance(source, orbax.OrbaxDirectory):  # whose arrays are compressed, and share nothing
        _check_sharing(storage, reader)
    return reader


def _check_sharing(storage: Storage, reader: ForeignReader) -> None:
    """Makes sure that the tensors, which may lie in one storage, do not take far more memory than the file has bytes."""
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


def _open_file(storage: Storage, path: str) -> Source | None:
    if path.endswith(_INDEX):
        from milepost.foreign import shards

        return shards.ShardedModel(storage.open(path), lambda shard: _open_shard(storage, shard))
    return _open_shard(storage, path)


def _open_shard(storage: Storage, path: str) -> Source | None:
    # Every program imports this module, and few open such files.
    from milepost.foreign import keras_files, kinds, safetensors, torch_archive, torch_legacy

    file = storage.open(path)
    try:
        keras_files.refuse(file, path)
        if torch_archive.looks_like(file):
            return torch_archive.TorchArchive(file)
        if torch_legacy.looks_like(file):
            return torch_legacy.LegacyTorchFile(file)
        if safetensors.looks_like(file):
            return safetensors.SafetensorsFile(file)
        kinds.refuse(file)
        if path.endswith(safetensors.SUFFIX):
            return safetensors.SafetensorsFile(file)
    except BaseException:
        file.close()
        raise
    file.close()
    return None


def _open_directory(storage: Storage, path: str) -> Source | None:
    inside = _model_in(storage, path)
    if inside is not None:
        return _open_file(storage, inside)
    return orbax.OrbaxDirectory(path) if _is_orbax(storage, path) else None


def is_item_of_orbax(storage: Storage, path: str) -> bool:
    """Whether a directory is an item of Orbax's itself, so that a file `checkpoint` in it is none of a series."""
    return isinstance(storage, LocalStorage) and os.path.isdir(path) and orbax.is_item(path)


def is_foreign_directory(storage: Storage, path: str) -> bool:
    """Whether a directory is one that `open_foreign` opens."""
    return _model_in(storage, path) is not None or _is_orbax(storage, path)


def _model_in(storage: Storage, path: str) -> str | None:
    """The file, or the index, of the model in a directory."""
    if not storage.is_directory(path):
        return None
    candidates = [os.path.join(path, name) for name in _IN_DIRECTORIES]
    candidates = [each for name in candidates for each in (name + _INDEX, name)]
    return next((each for each in candidates if storage.is_file(each)), None)


def _is_orbax(storage: Storage, path: str) -> bool:
    return isinstance(storage, LocalStorage) and os.path.isdir(path) and orbax.looks_like(path)
