"""Small files that are read and written as a whole."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError, StorageError
from milepost.series.notes import Temporary, new_token
from milepost.storage import Storage
from milepost.storage.checked import conditional


def write_file(storage: Storage, path: str, data: bytes, present: bytes | None) -> None:
    """Writes a small file durably, or replaces it.

    Args:
        storage: Where it is.
        path: The file.
        data: The whole content.
        present: What was read of it; None if it was not there. A store writes the file only if this is still so. A disk replaces it in any case.

    Raises:
        StorageError: The file cannot be written.
    """
    store = conditional(storage, path)
    if store is not None:
        store.replace(path, data, present)
        return
    temporary = Temporary(path, new_token()).path
    try:
        with storage.create(temporary) as file:
            file.write(0, [data])
            file.sync()
            rename(storage, temporary, path)
    except BaseException as error:
        with suppress(StorageError):  # a later sweep removes it
            storage.remove(temporary)
        if isinstance(error, CheckpointNotFoundError):
            raise vanished(error) from error
        raise
    storage.sync_directory(os.path.dirname(path))


def read_whole(storage: Storage, path: str) -> bytes | None:
    """The bytes of a file, or None if there is none.

    Raises:
        StorageError: The file cannot be read.
    """
    try:
        file = storage.open(path)
    except (CheckpointNotFoundError, CorruptCheckpointError):
        return None
    try:
        return file.read(0, file.size)
    except CheckpointNotFoundError:
        return None  # it was removed meanwhile
    finally:
        file.close()


def rename(storage: Storage, temporary: str, final: str) -> None:
    """Gives a file of a save its final name.

    Raises:
        StorageError: The file cannot be renamed. If a directory has the final name, the error names that directory.
    """
    try:
        storage.rename(temporary, final)
    except StorageError as error:
        if error.errno != errno.EISDIR:
            raise
        raise StorageError(
            "cannot save: a directory has the name that a file of the checkpoint needs",
            errno=errno.EISDIR,
            file=final,
            expected="a file, or nothing",
            found="a directory",
            remedy="rename or remove that directory, or save under another name",
        ) from error


def vanished(error: MilepostError) -> StorageError:
    """The error for a file of a save that another program has removed."""
    return StorageError(
        f"a file of a running save was removed: {error.problem}",
        errno=errno.ENOENT,
        file=error.file,
        remedy="keep other programs from removing this directory, and files in it that end in .tmp; then save again",
    )
