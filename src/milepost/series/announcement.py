"""Announcements of numbered saves. They tell which checkpoints a killed process had saved but not yet listed.

A numbered save creates an empty file (`milepost.series.notes`) before its index becomes visible. It removes the file when the state file that names
the checkpoint P is durable. A process that was killed in between leaves its announcement. Its save reached the commit point if
the index of P has this digest. An index with another digest belongs to another run, or is a copy.
"""

from __future__ import annotations

import time
from typing import Final

from milepost.bundle import index_path
from milepost.coding.digest import blake2b
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError, StorageError, warn
from milepost.series.damage import concerns_file
from milepost.series.notes import Temporary, temporaries
from milepost.storage import Storage, WritableFile
from milepost.storage.checked import conditional

_DIGEST_BYTES: Final = 8
_PAUSE: Final = 0.2
_LONGEST_WAIT: Final = 600.0
"""Seconds after which a new run goes on beside a process that neither lists its checkpoint nor counts as dead."""


class Announcement:
    """The announcement of one save. It exists from before the commit until the checkpoint is listed.

    Example:
        >>> from milepost.storage import MemoryStorage
        >>> storage, announcement = MemoryStorage(), Announcement()
        >>> announcement.make(storage, "run/ckpt-1", "0123456789abcdef", b"index")
        >>> storage.list("run")
        ['ckpt-1.milepost-0123456789abcdef-index-590407b549d6e3b4.tmp']
        >>> announcement.withdraw()
        >>> storage.list("run")
        []
    """

    def __init__(self) -> None:
        self._storage: Storage | None = None
        self._file: WritableFile | None = None
        self._made: Temporary | None = None
        self._may_be_committed = False

    def make(self, storage: Storage, prefix: str, token: str, index: bytes) -> None:
        """Announces the save of ``prefix`` whose index has these bytes. It is durable after the directory is synced.

        Raises:
            StorageError: The file cannot be created.
        """
        self._storage = storage
        self._made = Temporary.announcement(prefix, token, digest_of(index))
        self._file = storage.create(self._made.path)

    def begin_commit(self) -> None:
        """Tells that the commit of the announced save begins now."""
        self._may_be_committed = True

    def is_committed(self) -> bool | None:
        """Whether the announced index is visible. None if the commit has begun and the index cannot be read, so that nothing tells."""
        if not self._may_be_committed or self._storage is None or self._made is None:
            return False
        try:
            return _is_visible(self._storage, self._made)
        except StorageError:
            return None

    def withdraw(self) -> None:
        """Removes the announcement. One that cannot be removed does no harm, and a later sweep removes it."""
        if self._file is not None and self._storage is not None:
            try:
                self._storage.remove(self._file.path)
            except MilepostError:
                pass
            self.leave()

    def leave(self) -> None:
        """Leaves the announcement to the next run, which lists the checkpoint."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except StorageError:
                pass  # The file is empty, so nothing is lost.


def digest_of(index: bytes) -> str:
    """The digest of the bytes of an index, as in the name of an announcement.

    Example:
        >>> digest_of(b"index")
        '590407b549d6e3b4'
    """
    return blake2b([index], _DIGEST_BYTES)


def announced(storage: Storage, directory: str) -> list[str]:
    """Checkpoints that dead processes had saved and not yet listed, oldest first.

    Args:
        storage: Where the directory is.
        directory: The directory.

    Raises:
        StorageError: The directory cannot be read.
    """
    pairs = []
    for temporary in temporaries(storage, directory):
        if temporary.digest is not None and not storage.in_use(temporary.path) and _visibility(storage, temporary):
            try:
                pairs.append((storage.modified(index_path(temporary.final)), temporary.final))
            except CheckpointNotFoundError:
                pass  # Another process has just removed it.
    pairs.sort(key=lambda pair: (pair[0], len(pair[1]), pair[1]))  # a longer number is a higher one
    return list(dict.fromkeys(prefix for _, prefix in pairs))


def wait_until_told(storage: Storage, directory: str) -> None:
    """Waits until processes that may live have listed what they have committed, or count as dead. On a disk, a killed one counts so at once.

    Args:
        storage: Where the directory is.
        directory: The directory.

    Raises:
        StorageError: The directory cannot be read.
    """
    deadline, is_first = time.monotonic() + _LONGEST_WAIT, True
    while conditional(storage, directory) is not None and time.monotonic() < deadline:
        open_ones = [each for each in temporaries(storage, directory) if each.digest is not None]
        open_ones = [each for each in open_ones if storage.in_use(each.path) and _visibility(storage, each)]
        if not open_ones:
            return
        if is_first:
            warn(
                f"{open_ones[0].final} is saved, and not listed yet: this waits until the process that saved it lists it, or counts as killed"
            )
        is_first = False
        time.sleep(_PAUSE)


def is_pending(storage: Storage, announcement: Temporary) -> bool:
    """Whether an announced save reached its commit point, so that its checkpoint may still have to be listed.

    An index that cannot be read just now, for a reason other than damage, counts as that of the save, so that its announcement stays.
    """
    return _visibility(storage, announcement) is not False


def forget(storage: Storage, directory: str) -> None:
    """Removes the announcements of dead processes. Call it when their checkpoints, or newer ones, are listed.

    One whose index cannot be read just now stays, because its checkpoint is not listed.

    Raises:
        StorageError: A file cannot be removed.
    """
    for temporary in temporaries(storage, directory):
        if temporary.digest is None or storage.in_use(temporary.path):
            continue
        if _visibility(storage, temporary) is not None:
            storage.remove(temporary.path)


def _visibility(storage: Storage, announcement: Temporary) -> bool | None:
    """Whether the index of an announced save is visible. None if it cannot be read just now."""
    try:
        return _is_visible(storage, announcement)
    except StorageError as error:
        return False if concerns_file(error) else None


def _is_visible(storage: Storage, announcement: Temporary) -> bool:
    try:
        file = storage.open(index_path(announcement.final))
    except (CheckpointNotFoundError, CorruptCheckpointError):
        return False
    try:
        return digest_of(file.read(0, file.size)) == announcement.digest
    except CorruptCheckpointError:
        return False
    finally:
        file.close()
