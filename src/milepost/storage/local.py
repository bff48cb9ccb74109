"""`LocalStorage`: the files and directories of this machine.

===================  ===============================================================================
`local_files`        open files
`system_errors`      milepost's errors for errors of the operating system
`operating_system`   the choice between `on_posix` and `on_windows`, which have what differs by operating system
`positions`          reads and writes at a position of an open file
===================  ===============================================================================
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Final, NamedTuple

from milepost.errors import CheckpointNotFoundError, MilepostError, StorageError
from milepost.storage.local_files import LocalFile, LocalWriter
from milepost.storage.operating_system import system
from milepost.storage.paths import (
    ORDINARY,
    ImpossiblePathError,
    check_link,
    check_local,
    check_possible,
    missing_before_parent,
    without_file_scheme,
)
from milepost.storage.system_errors import in_the_way, raise_explained, says_that_nothing_is_there

_MOST_REMEMBERED: Final = 1024
"""Directories of which it is remembered that they are durable."""


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

    A URL of another scheme than ``file``, or a path that begins with ``~``, raises an `UnsupportedError`.

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
            raise_explained(error, "open for reading", path, reading=True)
        return LocalFile(path, place)

    def create(self, path: str) -> LocalWriter:
        try:
            place = self._place(path)
        except OSError as error:
            raise_explained(error, "create", path)
        return LocalWriter(path, place)

    def rename(self, source: str, target: str) -> None:
        try:
            system.replace(self._place(source), self._place(target))
        except OSError as error:
            raise_explained(error, f"rename to {target}", source)

    def link(self, source: str, target: str) -> None:
        try:
            system.link(self._place(source), self._place(target))
        except OSError as error:
            raise_explained(error, f"link to {target}", source)

    def remove(self, path: str) -> None:
        try:
            system.remove(self._place(path))
        except OSError as error:
            if not says_that_nothing_is_there(error):
                raise_explained(error, "remove", path)

    def fixed(self) -> LocalStorage:
        """A storage for which relative paths mean the same when the current directory changes. It knows the same directories as durable."""
        if self._directory is not None:
            return self
        copied = LocalStorage(self.absolute("."))
        copied._durable = self._durable
        return copied

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
            directories = [os.path.abspath(place)]
            with suppress(FileNotFoundError):
                # any other error, such as that of too long a path, is raised before a directory is made
                os.stat(directories[0])
            while (parent := os.path.dirname(directories[-1])) != directories[-1]:
                directories.append(parent)
            for each in reversed(directories[:-1]):
                self._make_one(each, os.path.dirname(each))
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.EEXIST) and not isinstance(error, MilepostError):
                raise in_the_way(error, path, place) from error
            raise_explained(error, "make a directory", path)

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
            raise_explained(error, "make the names durable", path)

    def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self._place(directory) or "."))
        except OSError as error:
            if not says_that_nothing_is_there(error):
                raise_explained(error, "list", directory)
            return []

    def is_file(self, path: str) -> bool:
        return stat.S_ISREG(self._mode(path))

    def is_directory(self, path: str) -> bool:
        return stat.S_ISDIR(self._mode(path or "."))

    def modified(self, path: str) -> float:
        try:
            return os.stat(self._place(path)).st_mtime
        except OSError as error:
            raise_explained(error, "look at", path, reading=True)

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
        path = without_file_scheme(path)
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
        except PermissionError as error:  # of the path itself, nothing need be allowed
            raise_explained(error, "look into this directory", os.path.dirname(path) or ".")
        except OSError as error:
            if not says_that_nothing_is_there(error):
                raise_explained(error, "look at", path)
            return 0

    def _place(self, path: str) -> str:
        """The path that is passed to the operating system.

        Raises:
            UnsupportedError: The path is not one of this machine.
            ImpossiblePathError: No file can have the path.
        """
        if os.name == "nt" or not ORDINARY.fullmatch(path):
            path = without_file_scheme(path)
            check_local(path)
            check_possible(path)
        return path if self._directory is None else os.path.join(self._directory, path)
