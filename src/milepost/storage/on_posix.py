"""What `LocalStorage` asks of Linux, macOS and other POSIX systems.

A file is locked while it is written, so that other processes can tell that it is not a leftover. If a system lacks a feature,
there is a replacement:

- without nameless files (``O_TMPFILE``, Linux), a file is created under its name and locked a moment later;
- without locks (``fcntl``, and some network file systems), every file counts as used, so no file counts as a leftover;
- without ``F_FULLFSYNC``, which only macOS has, ``fsync`` is enough;
- without ``sync_file_range`` (Linux), the system itself decides when it begins to write a file to the disk.
"""

from __future__ import annotations

import errno
import importlib
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final

from milepost.storage.descriptors import close_all, open_into

_fcntl: Any = None
with suppress(ImportError):
    _fcntl = importlib.import_module("fcntl")

NOTHING_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
"""Error numbers for a path that does not exist."""
REMEDY_FOR_ACCESS: Final = "change the permissions of the file or of its directory"

_NOT_SUPPORTED: Final = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS, errno.ENODEV)
_RANGE_WRITE: Final = 2
"""``SYNC_FILE_RANGE_WRITE``: begin to write, and wait for nothing."""
_CLOSE_ON_EXEC: Final = getattr(os, "O_CLOEXEC", 0)
# without O_NONBLOCK, opening a named pipe by mistake would wait for a writer forever
_READ: Final = os.O_RDONLY | _CLOSE_ON_EXEC | getattr(os, "O_NONBLOCK", 0)


@contextmanager
def _opened(place: str, flags: int) -> Iterator[int]:
    """A descriptor, which is closed when the block ends, wherever Ctrl-C comes."""
    opened: list[int] = []
    try:
        try:
            open_into(opened, place, flags)
            yield opened[0]
        finally:
            close_all(opened)
    finally:  # Ctrl-C may have come before the line above
        close_all(opened)


def open_to_read(place: str, opened: list[int]) -> None:
    """Opens an existing file, and adds its descriptor to a list."""
    open_into(opened, place, _READ)


def create(place: str, opened: list[int]) -> None:
    """Creates a file for writing, which `is_in_use` until it is closed, and adds its descriptor to a list that is empty.

    If it were visible before it is locked, another process could take it for a leftover. On systems that cannot make files
    without a name, this can happen for a moment.
    """
    if hasattr(os, "O_TMPFILE") and hasattr(os, "link"):
        try:
            open_into(opened, os.path.dirname(place) or ".", os.O_RDWR | os.O_TMPFILE | _CLOSE_ON_EXEC)
            _lock(opened[0])
            # `os.link` follows the symbolic link only if the descriptor of a directory is passed
            os.link(f"/proc/self/fd/{opened[0]}", place, src_dir_fd=opened[0], follow_symlinks=True)
            return
        except FileExistsError:
            raise
        except OSError:  # the file system has no nameless files; any other error is raised again below
            close_all(opened)
    open_into(opened, place, os.O_RDWR | os.O_CREAT | os.O_EXCL | _CLOSE_ON_EXEC)
    _lock(opened[0])


def give_up(descriptor: int) -> None:
    """Ends the use of a file that `create` has made, even if a child process has it open. The caller then closes it.

    Closing alone does not unlock a file that a child still has open. It comes second, so that a child that is forked in
    between has no lock.
    """
    if _fcntl is not None:
        try:
            _fcntl.flock(descriptor, _fcntl.LOCK_UN)
        except OSError:
            pass


def is_in_use(place: str) -> bool:
    """Whether a living process has the file open from `create`. True if the system cannot tell."""
    try:
        with _opened(place, _READ) as descriptor:
            return _fcntl is None or not _can_share(descriptor)
    except OSError as error:
        return error.errno not in NOTHING_THERE


def _can_share(descriptor: int) -> bool:
    try:
        # a shared lock, so that two processes that ask at once do not take each other for a writer
        _fcntl.flock(descriptor, _fcntl.LOCK_SH | _fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def replace(source: str, target: str) -> None:
    """Renames a file over another. Either may be open."""
    os.replace(source, target)


def link(source: str, target: str) -> None:
    """Gives a file a second name, once its data is on the disk. A symbolic link is refused: whoever owns its file may change it."""
    if not hasattr(os, "link"):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), source)
    if stat.S_ISLNK(os.lstat(source).st_mode):
        raise OSError(errno.ENOTSUP, "it is a symbolic link", source)
    with _opened(source, _READ) as descriptor:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), source)
        sync(descriptor)
    os.link(source, target)


def remove(place: str) -> None:
    """Removes a file. It may be open."""
    os.unlink(place)


def begin_sync(descriptor: int) -> None:
    """Has the disk take what was written to a file so far, and does not wait for it. So `sync` takes less time, and promises the same.

    An error of the disk is not lost by this: `sync` still raises it.
    """
    call = _sync_file_range()
    if call is not None:
        call(descriptor, 0, 0, _RANGE_WRITE)


def sync(descriptor: int) -> None:
    """Returns when the data of a file, or the names in a directory, are on the disk."""
    if hasattr(_fcntl, "F_FULLFSYNC"):
        # on macOS, fsync leaves the data in the memory of the drive
        try:
            _fcntl.fcntl(descriptor, _fcntl.F_FULLFSYNC)
            return
        except OSError as error:
            # network file systems may have only fsync
            if error.errno not in _NOT_SUPPORTED:
                raise
    os.fsync(descriptor)


def sync_directory(place: str) -> None:
    """Returns when the names in a directory are on the disk."""
    with _opened(place, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _CLOSE_ON_EXEC) as descriptor:
        if not hasattr(os, "O_DIRECTORY") and not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), place)
        sync(descriptor)


@cache
def _sync_file_range() -> Any:
    """The function of the C library, which Python does not have; None if there is none."""
    if sys.platform != "linux":
        return None
    try:
        ctypes: Any = importlib.import_module("ctypes")
        call = ctypes.CDLL(None).sync_file_range
    except (ImportError, OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


def _lock(descriptor: int) -> None:
    if _fcntl is not None:
        try:
            _fcntl.flock(descriptor, _fcntl.LOCK_EX)
        except OSError:
            pass  # some network file systems have no locks, so `is_in_use` cannot tell
