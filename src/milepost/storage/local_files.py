"""Open files of this machine, for reading and for writing."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Self

from milepost.errors import CorruptCheckpointError
from milepost.forks import ForkableLock, register_at_fork, tell_of_forks
from milepost.storage.buffers import byte_view, check_range
from milepost.storage.descriptors import close_all
from milepost.storage.interface import Buffer
from milepost.storage.operating_system import system
from milepost.storage.positions import MOST_BUFFERS, read_at, read_bytes_at, write_at
from milepost.storage.system_errors import raise_explained

_WORTH_SYNCING: Final = 8 << 20
"""Bytes after which the disk begins to take a file that is still written. Few calls are needed for so many, and a disk works on them
for milliseconds."""
_CLOSED: Final = (1 << 31) - 1
"""In place of the descriptor of a closed file. Every call of the system refuses it; a negative one would be a `ValueError`."""
_COARSEST: Final = 3_000_000_000
"""Nanoseconds. Two changes of a file that are further apart have different times on every file system; FAT counts in steps of two seconds."""


def _no_file(path: str, found: str) -> CorruptCheckpointError:
    return CorruptCheckpointError("cannot be read as part of a checkpoint", file=path, expected="a file", found=found)


class Stamp(NamedTuple):
    """What distinguishes the bytes of a file from all bytes that its path leads to later.

    Another file may get the same inode, and a program may set the time of its bytes. But then the time of change differs.

    Attributes:
        device: The file system.
        inode: The file in it.
        size: Its bytes.
        modified: When its bytes were changed, in nanoseconds.
        changed: When anything of it was changed, in nanoseconds.
    """

    device: int
    inode: int
    size: int
    modified: int
    changed: int


class LocalFile:
    """A file of this machine open for reading.

    Args:
        path: The path as the caller gave it.
        place: The path that is passed to the system.

    Attributes:
        stamp: Its stamp when it was opened. None on Windows, which has no time of change, and if the file was changed so
            recently that another change may have the same time.
    """

    _descriptor: int = _CLOSED

    def __init__(self, path: str, place: str) -> None:
        self.path = path
        self.place = place
        self._opened: list[int] = []
        try:
            system.open_to_read(place, self._opened)
            self._descriptor = self._opened[0]
            status = os.fstat(self._descriptor)
        except IsADirectoryError:  # on Windows, which cannot open directories
            raise _no_file(path, "a directory") from None
        except OSError as error:
            raise_explained(error, "open for reading", path, reading=True)
        except BaseException:  # Ctrl-C, whose traceback may keep this object
            self.close()
            raise
        self.size = status.st_size
        stamp = Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        is_settled = os.name != "nt" and max(stamp.modified, stamp.changed) + _COARSEST < time.time_ns()
        self.stamp = stamp if is_settled else None
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise _no_file(path, "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file")

    def read(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or offset + length > self.size:
            self._check_range(offset, length)
        try:
            data = read_bytes_at(self._descriptor, length, offset)
        except OSError as error:
            raise_explained(error, "read", self.path)
        if len(data) == length:
            return data
        # The system reads at most 2 GiB at once.
        whole = bytearray(length)
        whole[: len(data)] = data
        self.read_into(offset + len(data), memoryview(whole)[len(data) :])
        return bytes(whole)

    def read_into(self, offset: int, buffer: Buffer) -> None:
        view = byte_view(buffer)
        if offset < 0 or offset + len(view) > self.size:
            self._check_range(offset, len(view))
        try:
            while view:
                count = read_at(self._descriptor, view, offset)
                if not count:
                    check_range(self.path, offset, len(view), os.fstat(self._descriptor).st_size)
                    raise OSError(errno.EIO, "nothing was read")
                offset += count
                view = view[count:]
        except OSError as error:
            raise_explained(error, "read", self.path)

    def fileno(self) -> int:
        """The file descriptor. It is valid while the file is open."""
        try:
            os.fstat(self._descriptor)
        except OSError as error:
            raise_explained(error, "read", self.path)
        return self._descriptor

    def close(self) -> None:
        _close_quietly(self)  # the file is only read, so nothing is lost

    def _check_range(self, offset: int, length: int) -> None:
        try:
            size = os.fstat(self._descriptor).st_size  # the file may have grown
        except OSError as error:
            raise_explained(error, "read", self.path)
        check_range(self.path, offset, length, size)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # At the end of a process the names of modules may be gone. The system closes the files.
        if getattr(self, "_opened", ()) and not is_finalizing():  # Ctrl-C may have come before there are any
            _close_quietly(self)


_opening: Final = ForkableLock()
"""Held while a file is created, so that no process is forked before the descriptor is known."""


class LocalWriter:
    """A new file of this machine. While it is open, other processes can tell that it is not a leftover.

    In a forked child, such as a worker that loads data, the copy of the descriptor is closed. Otherwise the file would stay in
    use when the process that writes it ends.

    Args:
        path: The path as the caller gave it.
        place: The path that is passed to the system.
    """

    _descriptor: int = _CLOSED

    def __init__(self, path: str, place: str) -> None:
        self.path = path
        self._opened: list[int] = []
        self._since = 0
        """Bytes since the disk was told to begin. Threads that write at the same time may count too few."""
        try:
            with _opening:
                system.create(place, self._opened)
                self._descriptor = self._opened[0]
                tell_of_forks(self)
        except BaseException as error:
            _close_quietly(self)
            if isinstance(error, OSError):
                raise_explained(error, "create", path)
            raise  # Ctrl-C: the file is a leftover, which the next save removes

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        views = [view for buffer in buffers if (view := byte_view(buffer))]
        size = sum(map(len, views))
        first = 0
        try:
            while first < len(views):
                count = write_at(self._descriptor, views[first : first + MOST_BUFFERS], offset)
                if not count:
                    raise OSError(errno.EIO, "nothing was written")
                offset += count
                while first < len(views) and count >= len(views[first]):
                    count -= len(views[first])
                    first += 1
                if count:
                    views[first] = views[first][count:]
        except OSError as error:
            raise_explained(error, "write", self.path)
        self._since += size
        if self._since >= _WORTH_SYNCING:
            self._since = 0
            system.begin_sync(self._descriptor)

    def sync(self) -> None:
        try:
            system.sync(self._descriptor)
        except OSError as error:
            raise_explained(error, "make durable", self.path)

    def close(self) -> None:
        if self._opened:
            system.give_up(self._descriptor)
            self._descriptor = _CLOSED
            try:
                close_all(self._opened)
            except OSError as error:
                raise_explained(error, "close", self.path)

    def after_fork(self) -> None:
        """Closes the copy of a forked child. `close` would unlock the file for the parent too."""
        _close_quietly(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if getattr(self, "_opened", ()) and not is_finalizing():  # Ctrl-C may have come before there are any
            system.give_up(self._opened[0])
            _close_quietly(self)


def _close_quietly(file: LocalFile | LocalWriter) -> None:
    """Closes a file that is no longer used."""
    file._descriptor = _CLOSED
    try:
        close_all(file._opened)
    except OSError:
        pass


register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_opening.release)
