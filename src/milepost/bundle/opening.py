"""Opening a checkpoint of either version, whole.

A checkpoint may be replaced by another of the same prefix while it is opened: first its index, then its data files go.
What is opened between the two would be the index of one and the data of the other. So the data files are opened at once,
and if another index is visible after that, everything is opened anew.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from milepost.bundle.interface import BundleReader
from milepost.bundle.legacy import LegacyReader
from milepost.bundle.names import locate
from milepost.bundle.reader import IndexedReader
from milepost.errors import MilepostError, StorageError
from milepost.storage import Storage

_MOST_HELD: Final = 64
"""Data files that are opened at once. Of more, each is opened when it is needed."""
_TRIES: Final = 200
"""How often a checkpoint is opened anew. A save takes longer than opening does, so that two are enough as a rule."""


def open_bundle(storage: Storage, prefix: str | os.PathLike[str]) -> BundleReader:
    """Opens a checkpoint, reading its index only.

    Args:
        storage: Where it is.
        prefix: Its prefix; the path of an index is understood as one.

    Raises:
        CheckpointNotFoundError: There is none; the error says what there is.
        CorruptCheckpointError: The index is damaged, or the file is something else.
        UnsupportedError: A newer TensorFlow wrote it and says that this reader must not read it.
    """
    location = locate(storage, prefix)
    if location.version == 1:
        return LegacyReader(storage, location.prefix, location.files)
    return IndexedReader(storage, location.prefix, location.files[0])


def open_whole(storage: Storage, prefix: str | os.PathLike[str]) -> BundleReader:
    """Opens a checkpoint and its data files, so that it can be read whatever becomes of their names.

    A data file that is missing is no error before a tensor in it is asked for.

    Args:
        storage: Where it is.
        prefix: Its prefix; the path of an index is understood as one.

    Raises:
        CheckpointNotFoundError: There is none; the error says what there is.
        CorruptCheckpointError: The index is damaged, or the file is something else.
        StorageError: It is replaced again and again while it is opened.
        UnsupportedError: A newer TensorFlow wrote it and says that this reader must not read it.

    Example:
        >>> import numpy as np
        >>> from milepost.bundle import BundleWriter
        >>> from milepost.engine.commit import commit_bundle
        >>> from milepost.storage import MemoryStorage
        >>> storage = MemoryStorage()
        >>> commit_bundle(storage, "ckpt", lambda writer: writer.add("x", np.float32([1, 2])))
        >>> reader = open_whole(storage, "ckpt")
        >>> commit_bundle(storage, "ckpt", lambda writer: writer.add("x", np.float32([3, 4])))
        >>> reader.read("x")
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
        "this checkpoint is replaced by another again and again while it is opened",
        errno=errno.EBUSY,
        file=os.fspath(prefix),
        remedy="let the program that saves it wait between two saves, or read another checkpoint",
    )
