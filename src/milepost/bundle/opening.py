"""Opens a whole checkpoint of either version.

Another checkpoint with the same prefix may replace a checkpoint while it is opened: first the index is replaced, then the data
files. An index that is opened in between belongs to one checkpoint, and the data to the other. So the data files are opened at
once, and if another index is visible after that, all files are opened again.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from milepost.bundle.format.names import index_path, locate
from milepost.bundle.interface import BundleReader
from milepost.bundle.reader import IndexedReader
from milepost.errors import MilepostError, StorageError, importing
from milepost.storage import Storage
from milepost.storage.paths import plain_path

_MOST_HELD: Final = 64
"""The largest number of data files that are opened at once. If there are more, each is opened when it is needed."""
_TRIES: Final = 200
"""How often the files are opened again. A save takes longer than opening, so two are usually enough."""


def open_bundle(storage: Storage, prefix: str | os.PathLike[str]) -> BundleReader:
    """Opens a checkpoint, reading its index only.

    Args:
        storage: Where the checkpoint is.
        prefix: Its prefix. The path of an index is accepted too.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint. The error says which there are.
        CorruptCheckpointError: The index is damaged, or the file is something else.
        UnsupportedError: A newer TensorFlow wrote it, and states that this reader must not read it.
    """
    prefix = plain_path(prefix)
    if storage.is_file(index_path(prefix)):
        return IndexedReader(storage, prefix, index_path(prefix))
    location = locate(storage, prefix)
    if location.version == 1:
        with importing():
            from milepost.bundle.legacy import LegacyReader  # few checkpoints are so old

        return LegacyReader(storage, location.prefix, location.files)
    return IndexedReader(storage, location.prefix, location.files[0])


def open_whole(storage: Storage, prefix: str | os.PathLike[str]) -> BundleReader:
    """Opens a checkpoint and its data files, so that it can be read even if they are renamed or removed.

    A missing data file is an error only when a tensor in it is read.

    Args:
        storage: Where the checkpoint is.
        prefix: Its prefix. The path of an index is accepted too.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint. The error says which there are.
        CorruptCheckpointError: The index is damaged, or the file is something else.
        StorageError: The checkpoint was replaced each time it was opened.
        UnsupportedError: A newer TensorFlow wrote it, and states that this reader must not read it.

    Example:
        >>> import numpy as np
        >>> import milepost
        >>> from milepost.storage import MemoryStorage
        >>> options = milepost.CheckpointOptions(storage=MemoryStorage())
        >>> path = milepost.save("ckpt", {"x": np.float32([1, 2])}, options)
        >>> reader = open_whole(options.storage, path)
        >>> path = milepost.save("ckpt", {"x": np.float32([3, 4])}, options)
        >>> reader.read("x/.ATTRIBUTES/VARIABLE_VALUE")
        array([1., 2.], dtype=float32)
    """
    for _ in range(_TRIES):
        reader = open_bundle(storage, prefix)
        try:
            if len(reader.shard_paths) <= _MOST_HELD:
                reader.hold()
            complete = not reader.is_replaced()
        except MilepostError:
            complete = not reader.is_replaced()
        except BaseException:
            reader.close()
            raise
        if complete:
            return reader
        reader.close()
    raise StorageError(
        "this checkpoint was replaced by another one each time it was opened",
        errno=errno.EBUSY,
        file=os.fspath(prefix),
        remedy="let the program that saves it wait between two saves, or read another checkpoint",
    )
