"""Files of this machine. What differs by operating system is in `on_posix`, `on_windows` and `positions`."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, NoReturn, Self

from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError, StorageError
from milepost.forks import register_at_fork
from milepost.storage.buffers import byte_view, check_range
from milepost.storage.interface import Buffer, Storage
from milepost.storage.paths import (
    ORDINARY,
    ImpossiblePathError,
    check_link,
    check_local,
    check_possible,
    missing_before_parent,
)
from milepost.storage.positions import MOST_BUFFERS, read_at, read_bytes_at, write_at

if sys.platform == "win32":
    from milepost.storage import on_windows as system
else:
    from milepost.storage import on_posix as system

_REMEDIES = {
    errno.ENOSPC: "free space on the device, or save elsewhere; the previous checkpoint is untouched",
    errno.EDQUOT: "raise the quota, or save elsewhere; the previous checkpoint is untouched",
    errno.EROFS: "save to a directory that can be written",
    errno.EACCES: system.REMEDY_FOR_ACCESS,
    errno.EPERM: system.REMEDY_FOR_ACCESS,
    errno.EIO: "check the disk: the log of the system has more about the fault",
    errno.ESTALE: "try again: the server of this network file system has replaced or removed the file",
    errno.EFBIG: "raise the limit of the size of a file (ulimit -f), or divide the save by milepost.MaxShardSizePolicy",
    errno.ENFILE: "close files in other programs: this machine cannot open more",
    errno.EMFILE: "close files that are no longer needed, or raise the limit of open files (ulimit -n)",
    errno.ENAMETOOLONG: "choose a shorter name; while a save runs, names of its files are 50 characters longer",
    errno.ELOOP: "repair the symbolic link, which leads back to itself",
}

_CREATIONS: Final = ("create", "make a directory")
_REMEDY_FOR_CREATION: Final = "let this user write to the directory, or save to another one"
_MOST_REMEMBERED: Final = 1024
_WORTH_SYNCING: Final = 8 << 20
"""Bytes after which the disk begins to take a file that is still written. Few calls are needed for so many, and a disk works on them
for milliseconds."""
_CLOSED: Final = (1 << 31) - 1
"""In place of the descriptor of a closed file. Every call of the system refuses it; a negative one would be a `ValueError`."""


def _raise_explained(error: OSError, doing: str, path: str, *, reading: bool = False) -> NoReturn:
    """Raises milepost's error for an error of the system. To a reader, an impossible path is one that does not exist."""
    if isinstance(error, MilepostError):
        raise error
    if isinstance(error, FileNotFoundError):
        raise CheckpointNotFoundError(f"cannot {doing}: there is no such file or directory", file=path) from None
    code = error.errno or 0
    is_impossible = isinstance(error, ImpossiblePathError)
    reason = error.strerror if is_impossible else os.strerror(code) if code else error
    if reading and (is_impossible or code in system.NOTHING_THERE):
        raise CheckpointNotFoundError(f"cannot {doing}: {reason}", file=path) from None
    remedy = "use a path that a file can have" if is_impossible else _REMEDIES.get(code)
    if doing in _CREATIONS and code in (errno.EACCES, errno.EPERM):
        remedy = _REMEDY_FOR_CREATION
    raise StorageError(f"cannot {doing}: {reason}", errno=code, file=path, remedy=remedy) from error


def _says_that_nothing_is_there(error: OSError) -> bool:
    return isinstance(error, ImpossiblePathError) or error.errno in system.NOTHING_THERE


def _in_the_way(error: OSError, path: str, place: str) -> StorageError:
    """The error for a directory that cannot be made because a file has its name, or that of a directory above it."""
    above = os.path.abspath(place)
    while not os.path.lexists(above) and os.path.dirname(above) != above:
        above = os.path.dirname(above)
    return StorageError(
        f"cannot make a directory: {os.strerror(error.errno or 0)}",
        errno=error.errno,
        file=path,
        expected="a directory, or nothing",
        found=f"{above}, which is not a directory",
        remedy="save to another directory, or rename or remove that file",
    )


def _no_file(path: str, found: str) -> CorruptCheckpointError:
    return CorruptCheckpointError("cannot be read as part of a checkpoint", file=path, expected="a file", found=found)


class LocalFile:
    """A file of this machine open for reading.

    Args:
        path: The path as the caller gave it.
        place: The path that is passed to the system.
    """

    def __init__(self, path: str, place: str) -> None:
        self.path = path
        self.place = place
        try:
            self._descriptor = system.open_to_read(place)
            status = os.fstat(self._descriptor)
        except IsADirectoryError:  # on Windows, which cannot open directories
            raise _no_file(path, "a directory") from None
        except OSError as error:
            _raise_explained(error, "open for reading", path, reading=True)
        self.size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise _no_file(path, "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file")

    def read(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or offset + length > self.size:
            self._check_range(offset, length)
        try:
            data = read_bytes_at(self._descriptor, length, offset)
        except OSError as error:
            _raise_explained(error, "read", self.path)
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
            _raise_explained(error, "read", self.path)

    def fileno(self) -> int:
        """The file descriptor. It is valid while the file is open."""
        try:
            os.fstat(self._descriptor)
        except OSError as error:
            _raise_explained(error, "read", self.path)
        return self._descriptor

    def close(self) -> None:
        if self._descriptor != _CLOSED:
            descriptor, self._descriptor = self._descriptor, _CLOSED
            with suppress(OSError):  # the file is only read, so nothing is lost
                os.close(descriptor)

    def _check_range(self, offset: int, length: int) -> None:
        try:
            size = os.fstat(self._descriptor).st_size  # the file may have grown
        except OSError as error:
            _raise_explained(error, "read", self.path)
        check_range(self.path, offset, length, size)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # At the end of a process the names of modules may be gone. The system closes the files.
        if getattr(self, "_descriptor", _CLOSED) != _CLOSED and not is_finalizing():
            _close_quietly(self)


_opening: Final = threading.RLock()
"""Held while a file is created, so that no process is forked before the descriptor is known."""


class LocalWriter:
    """A new file of this machine. While it is open, other processes can tell that it is not a leftover.

    In a forked child, such as a worker that loads data, the copy of the descriptor is closed. Otherwise the file would stay in
    use when the process that writes it ends.

    Args:
        path: The path as the caller gave it.
        place: The path that is passed to the system.
    """

    def __init__(self, path: str, place: str) -> None:
        self.path = path
        with _opening:
            try:
                self._descriptor = system.create(place)
            except OSError as error:
                _raise_explained(error, "create", path)
            _writers.add(self)
        self._since = 0
        """Bytes since the disk was told to begin. Threads that write at the same time may count too few."""

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
            _raise_explained(error, "write", self.path)
        self._since += size
        if self._since >= _WORTH_SYNCING:
            self._since = 0
            system.begin_sync(self._descriptor)

    def sync(self) -> None:
        try:
            system.sync(self._descriptor)
        except OSError as error:
            _raise_explained(error, "make durable", self.path)

    def close(self) -> None:
        if self._descriptor != _CLOSED:
            system.give_up(self._descriptor)
            descriptor, self._descriptor = self._descriptor, _CLOSED
            try:
                os.close(descriptor)
            except OSError as error:
                _raise_explained(error, "close", self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if getattr(self, "_descriptor", _CLOSED) != _CLOSED and not is_finalizing():
            system.give_up(self._descriptor)
            _close_quietly(self)


_writers: Final[weakref.WeakSet[LocalWriter]] = weakref.WeakSet()
"""All open writers, and some closed ones."""


def _close_quietly(file: LocalFile | LocalWriter) -> None:
    """Closes a file that is no longer used."""
    descriptor, file._descriptor = getattr(file, "_descriptor", _CLOSED), _CLOSED
    if descriptor != _CLOSED:
        try:
            os.close(descriptor)
        except OSError:
            pass


def _close_in_child() -> None:
    _opening.release()
    for writer in list(_writers):
        # not `LocalWriter.close`, which would unlock the file for the parent too
        _close_quietly(writer)


register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_close_in_child)


class _Seen(NamedTuple):
    """A directory at one moment, to be compared with the directory that has its path later.

    Another directory may get the same inode. But then the times of change of it and of the directory above differ.

    Attributes:
        nodes: Device and inode of the directory, and of the directory above.
        changed: When the directory was changed, in nanoseconds.
        above_changed: When the directory above was changed, in nanoseconds.
    """

    nodes: tuple[int, int, int, int]
    changed: int
    above_changed: int

    def is_same_as(self, later: _Seen) -> bool:
        """Whether the path leads to the same directory at a later moment."""
        is_new = self.changed != later.changed and self.above_changed != later.above_changed
        return self.nodes == later.nodes and not is_new


class LocalStorage:
    """Files of this machine. Paths are those of the ``os`` module.

    A URL, or a path that begins with ``~``, raises an `UnsupportedError`.

    Args:
        directory: The directory of relative paths. By default it is the current directory at each call.

    Example:
        >>> import tempfile
        >>> storage = LocalStorage(tempfile.mkdtemp())
        >>> with storage.create("note") as file:
        ...     file.write(0, [b"text"])
        >>> storage.list("")
        ['note']
    """

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory
        self._durable: dict[str, _Seen] = {}
        """Directories whose names survive a power cut."""

    def open(self, path: str) -> LocalFile:
        try:
            place = self._place(path)
        except OSError as error:
            _raise_explained(error, "open for reading", path, reading=True)
        return LocalFile(path, place)

    def create(self, path: str) -> LocalWriter:
        try:
            place = self._place(path)
        except OSError as error:
            _raise_explained(error, "create", path)
        return LocalWriter(path, place)

    def rename(self, source: str, target: str) -> None:
        try:
            system.replace(self._place(source), self._place(target))
        except OSError as error:
            _raise_explained(error, f"rename to {target}", source)

    def link(self, source: str, target: str) -> None:
        try:
            system.link(self._place(source), self._place(target))
        except OSError as error:
            _raise_explained(error, f"link to {target}", source)

    def remove(self, path: str) -> None:
        try:
            system.remove(self._place(path))
        except OSError as error:
            if not _says_that_nothing_is_there(error):
                _raise_explained(error, "remove", path)

    def make_directory(self, path: str) -> None:
        try:
            place = self._place(path)
            # abspath removes sub/.. without looking; the system does not
            if os.pardir in place and (missing := missing_before_parent(place)):
                raise StorageError(
                    f"cannot make a directory: {missing} does not exist, and a .. follows it",
                    errno=errno.ENOENT,
                    file=path,
                    remedy=f"make {missing}, or save to {os.path.abspath(place)}",
                )
            places = [os.path.abspath(place)]
            with suppress(FileNotFoundError):
                os.stat(
                    places[0]
                )  # any other error, such as that of too long a path, is raised before a directory is made
            while (parent := os.path.dirname(places[-1])) != places[-1]:
                places.append(parent)
            for each in reversed(places[:-1]):
                self._make_one(each, os.path.dirname(each))
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.EEXIST) and not isinstance(error, MilepostError):
                raise _in_the_way(error, path, place) from error
            _raise_explained(error, "make a directory", path)

    def _make_one(self, path: str, parent: str) -> None:
        """Makes a directory if it does not exist, and makes its name durable."""
        made = False
        try:
            status = os.stat(path)
        except FileNotFoundError:
            try:
                os.mkdir(path)
                made = True
            except FileExistsError:
                check_link(path)
            status = os.stat(path)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        above = os.stat(parent)
        now = _Seen((status.st_dev, status.st_ino, above.st_dev, above.st_ino), status.st_ctime_ns, above.st_ctime_ns)
        before = self._durable.get(path)
        is_durable = not made and before is not None and before.is_same_as(now)
        if not is_durable and (made or above.st_dev == status.st_dev):
            try:
                # the user may have made it a moment ago, without a sync
                self.sync_directory(parent)
            except StorageError:
                if made:
                    raise
                # the directory above may belong to another user; then it need not be made durable
        if len(self._durable) >= _MOST_REMEMBERED:
            self._durable.clear()
        self._durable[path] = now

    def sync_directory(self, path: str) -> None:
        try:
            system.sync_directory(self._place(path) or ".")
        except OSError as error:
            _raise_explained(error, "make the names durable", path)

    def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self._place(directory) or "."))
        except OSError as error:
            if not _says_that_nothing_is_there(error):
                _raise_explained(error, "list", directory)
            return []

    def is_file(self, path: str) -> bool:
        return stat.S_ISREG(self._mode(path))

    def is_directory(self, path: str) -> bool:
        return stat.S_ISDIR(self._mode(path or "."))

    def modified(self, path: str) -> float:
        try:
            return os.stat(self._place(path)).st_mtime
        except OSError as error:
            _raise_explained(error, "look at", path, reading=True)

    def in_use(self, path: str) -> bool:
        try:
            return system.is_in_use(self._place(path))
        except ImpossiblePathError:
            return False

    def absolute(self, path: str) -> str:
        """The absolute path, which does not depend on the current directory.

        Raises:
            CheckpointNotFoundError: The path is relative, and the current directory was removed.
        """
        check_local(path)
        try:
            return os.path.abspath(os.path.join(self._directory or "", path))
        except FileNotFoundError:
            raise CheckpointNotFoundError(
                "this path is relative, and the current directory of this process does not exist any more",
                file=path,
                remedy="change to another directory by os.chdir(), or pass an absolute path",
            ) from None

    def _mode(self, path: str) -> int:
        """The file mode of a path. 0 if the path does not exist; an error if the system cannot tell."""
        try:
            return os.stat(self._place(path)).st_mode
        except FileNotFoundError:
            return 0
        except OSError as error:
            if not _says_that_nothing_is_there(error):
                _raise_explained(error, "look at", path)
            return 0

    def _place(self, path: str) -> str:
        """The path that is passed to the operating system.

        Raises:
            UnsupportedError: The path is not one of this machine.
            ImpossiblePathError: No file can have the path.
        """
        if os.name == "nt" or not ORDINARY.fullmatch(path):
            check_local(path)
            check_possible(path)
        return path if self._directory is None else os.path.join(self._directory, path)


LOCAL_STORAGE: Final = LocalStorage()
"""The default storage. There is only one, because it remembers which directories are durable."""


def anchored(storage: Storage, path: str) -> Storage:
    """A storage for which a relative path has the same meaning when the current directory changes.

    Args:
        storage: Any storage. Only a `LocalStorage` depends on the current directory.
        path: The path to be used with the storage.

    Returns:
        A copy of a `LocalStorage` if the path is relative; otherwise the storage itself.

    Raises:
        UnsupportedError: The path is a URL or begins with ``~``, and the storage is one of this machine's.
    """
    # an object of a subclass may count or change calls, so it is not copied
    if type(storage) is not LocalStorage:
        return storage
    if os.path.isabs(path):
        return storage
    check_local(path)
    if storage._directory is not None:
        return storage
    copied = LocalStorage(storage.absolute("."))
    copied._durable = storage._durable
    return copied
