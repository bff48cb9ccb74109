"""A storage in memory with the rules of Windows, for tests on any system.

- A file that is open for reading cannot be removed, replaced or renamed, under any of its names. Windows treats a file in this way if
  another program has it open, or if it is mapped. `LocalStorage` opens its files so that they can be removed; this storage is stricter.
- A file that is open for writing can be renamed and removed, like those of `LocalStorage`. A removed file keeps its name until it
  is closed. Until then it can be neither opened nor created again.
- Case does not matter in a search for a name, and is kept. Names of devices, and names with characters such as ``:``, cannot be
  created.
- ``/`` and ``\\`` separate names. A path may begin with a drive.
- A directory cannot be synced. A sync only checks that it exists.

Source: Microsoft's reference of the Win32 API, "CreateFileW function", "DeleteFileW function" and "Naming Files, Paths, and
Namespaces".
"""

from __future__ import annotations

import errno
import ntpath
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Self

from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, StorageError
from milepost.storage.buffers import byte_view, check_range
from milepost.storage.interface import Buffer
from milepost.storage.paths import ImpossiblePathError, check_possible, check_possible_on_windows
from milepost.storage.patience import patiently

CURRENT_DIRECTORY: Final = "C:\\work"
"""The directory to which relative paths are relative. It always exists."""


class _WindowsFile:
    """The bytes of a file, which may have several names, and how often it is open under any of them."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.modified = time.time()
        self.readers = 0
        self.writers = 0


class _File:
    """One name of a file."""

    def __init__(self, name: str, content: _WindowsFile) -> None:
        self.name = name
        self.content = content
        self.is_removed = False


class _Reader:
    def __init__(self, storage: WindowsStorage, path: str, file: _File) -> None:
        self.path = path
        self.size = len(file.content.data)
        self._storage = storage
        self._file: _File | None = file

    def read(self, offset: int, length: int) -> bytes:
        with self._storage._lock:
            data = self._open().content.data
            check_range(self.path, offset, length, len(data))
            return bytes(data[offset : offset + length])

    def read_into(self, offset: int, buffer: Buffer) -> None:
        target = byte_view(buffer)
        target[:] = self.read(offset, len(target))

    def close(self) -> None:
        with self._storage._lock:
            if self._file is not None:
                self._file.content.readers -= 1
                self._file = None

    def _open(self) -> _File:
        if self._file is None:
            raise _refused("read", self.path, errno.EBADF)
        return self._file

    def __del__(self) -> None:
        self.close()


class _Writer:
    def __init__(self, storage: WindowsStorage, path: str, file: _File) -> None:
        self.path = path
        self._storage = storage
        self._file: _File | None = file

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        views = [byte_view(buffer) for buffer in buffers]
        end = offset + sum(map(len, views))
        with self._storage._lock:
            content = self._open("write").content
            if end > offset:
                content.data.extend(bytes(max(0, end - len(content.data))))
            for view in views:
                content.data[offset : offset + len(view)] = view
                offset += len(view)
            content.modified = time.time()

    def sync(self) -> None:
        self._open("make durable")

    def close(self) -> None:
        with self._storage._lock:
            if self._file is not None:
                file, self._file = self._file, None
                file.content.writers -= 1
                if file.is_removed:
                    self._storage._forget(file)

    def _open(self, doing: str) -> _File:
        if self._file is None:
            raise _refused(doing, self.path, errno.EBADF)
        return self._file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class WindowsStorage:
    """Files in memory, with the rules of Windows.

    Args:
        patience: How many seconds to retry an operation that is refused because a file is open.

    Example:
        >>> storage = WindowsStorage(patience=0)
        >>> storage.make_directory("D:\\\\runs")
        >>> with storage.create("D:/runs/Note") as file:
        ...     file.write(0, [b"text"])
        >>> storage.list("d:\\\\RUNS")
        ['Note']
        >>> reader = storage.open("d:/runs/note")
        >>> storage.remove("D:/runs/Note")
        Traceback (most recent call last):
        milepost.errors.StorageError: cannot remove: Permission denied
          file: D:/runs/Note
          remedy: close the file wherever it is open
    """

    def __init__(self, *, patience: float = 0.05) -> None:
        self._patience = patience
        self._lock = threading.RLock()
        self._files: dict[str, _File] = {}
        self._directories: dict[str, str] = {}
        """The directories: their names, by their normalized paths."""
        self._make(CURRENT_DIRECTORY)

    def open_files(self) -> list[str]:
        """The names of files that are open for reading or writing."""
        with self._lock:
            return sorted(file.name for file in self._files.values() if _is_open(file))

    def open(self, path: str) -> _Reader:
        with self._lock:
            normalized_path = _existing(path)
            if normalized_path in self._directories:
                raise CorruptCheckpointError(
                    "cannot be read as part of a checkpoint", file=path, expected="a file", found="a directory"
                )
            file = self._files.get(normalized_path or "")
            if file is None:
                raise CheckpointNotFoundError("cannot open for reading: there is no such file", file=path)
            if file.is_removed:
                raise _refused("open for reading", path, errno.EACCES)
            file.content.readers += 1
            return _Reader(self, path, file)

    def create(self, path: str) -> _Writer:
        with self._lock, _possible("create", path):
            normalized_path = _new(path)
            there = self._files.get(normalized_path)
            if there is not None or normalized_path in self._directories:
                raise _refused("create", path, errno.EACCES if there is not None and there.is_removed else errno.EEXIST)
            self._check_directory("create", path, normalized_path)
            file = self._files[normalized_path] = _File(ntpath.basename(_whole(path)), _WindowsFile())
            file.content.writers += 1
            return _Writer(self, path, file)

    def rename(self, source: str, target: str) -> None:
        doing = f"rename to {target}"

        def move() -> None:
            with self._lock, _possible(doing, source):
                start, end = _existing(source) or "", _new(target)
                file, there = self._files.get(start), self._files.get(end)
                if end in self._directories:
                    raise _refused(doing, source, errno.EISDIR)
                if file is None or file.is_removed:
                    raise CheckpointNotFoundError(f"cannot {doing}: there is no such file", file=source)
                self._check_directory(doing, target, end)
                if file.content.readers or (there not in (None, file) and _is_open(there)):
                    raise PermissionError
                del self._files[start]
                file.name = ntpath.basename(_whole(target))
                self._files[end] = file

        self._try(move, doing, source)

    def link(self, source: str, target: str) -> None:
        doing = f"link to {target}"
        with self._lock, _possible(doing, source):
            start, end = _existing(source) or "", _new(target)
            if end in self._files or end in self._directories:
                raise _refused(doing, source, errno.EEXIST)
            if start in self._directories:
                raise _refused(doing, source, errno.EPERM)
            file = self._files.get(start)
            if file is None or file.is_removed:
                raise CheckpointNotFoundError(f"cannot {doing}: there is no such file", file=source)
            self._check_directory(doing, target, end)
            self._files[end] = _File(ntpath.basename(_whole(target)), file.content)

    def remove(self, path: str) -> None:
        def unlink() -> None:
            with self._lock:
                normalized_path = _existing(path) or ""
                if normalized_path in self._directories:
                    raise _refused("remove", path, errno.EISDIR)
                file = self._files.get(normalized_path)
                if file is None:
                    return
                if file.content.readers or file.is_removed:
                    raise PermissionError
                file.is_removed = True
                if not file.content.writers:
                    self._forget(file)

        self._try(unlink, "remove", path)

    def make_directory(self, path: str) -> None:
        with self._lock, _possible("make a directory", path):
            normalized_path = _new(path)
            if any(each in self._files for each in (normalized_path, *_above(normalized_path))):
                raise _refused("make a directory", path, errno.ENOTDIR)
            self._make(_whole(path))

    def sync_directory(self, path: str) -> None:
        if not self.is_directory(path):
            raise CheckpointNotFoundError("cannot make the names durable: there is no such directory", file=path)

    def list(self, directory: str) -> list[str]:
        with self._lock:
            normalized_path = _existing(directory)
            files = [file.name for each, file in self._files.items() if ntpath.dirname(each) == normalized_path]
            return sorted(
                files
                + [name for each, name in self._directories.items() if name and _above(each)[:1] == [normalized_path]]
            )

    def is_file(self, path: str) -> bool:
        return (_existing(path) or "") in self._files

    def is_directory(self, path: str) -> bool:
        return (_existing(path) or "") in self._directories

    def modified(self, path: str) -> float:
        with self._lock:
            file = self._files.get(_existing(path) or "")
            if file is None:
                raise CheckpointNotFoundError("cannot look at: there is no such file", file=path)
            return file.content.modified

    def in_use(self, path: str) -> bool:
        with self._lock:
            file = self._files.get(_existing(path) or "")
            return file is not None and file.content.writers > 0

    def _make(self, whole: str) -> None:
        normalized_path = ntpath.normcase(whole)
        names = [whole]
        while (above := ntpath.dirname(names[-1])) != names[-1]:
            names.append(above)
        for each in (normalized_path, *_above(normalized_path)):
            self._directories.setdefault(each, ntpath.basename(names.pop(0)))

    def _check_directory(self, doing: str, path: str, normalized_path: str) -> None:
        above = ntpath.dirname(normalized_path)
        if above in self._files:
            raise _refused(doing, path, errno.ENOTDIR)
        if above not in self._directories:
            raise CheckpointNotFoundError(f"cannot {doing}: there is no such file or directory", file=path)

    def _forget(self, file: _File) -> None:
        self._files = {key: each for key, each in self._files.items() if each is not file}

    def _try(self, act: Callable[[], None], doing: str, path: str) -> None:
        try:
            patiently(act, self._patience)
        except PermissionError as error:
            raise _refused(doing, path, errno.EACCES) from error


def _whole(path: str) -> str:
    """The absolute path, with its drive."""
    return ntpath.normpath(ntpath.join(CURRENT_DIRECTORY, path))


def _new(path: str) -> str:
    """The normalized path of a file or directory that is to be created."""
    check_possible(path)
    check_possible_on_windows(path)
    return ntpath.normcase(_whole(path))


def _existing(path: str) -> str | None:
    """The normalized path, or None if no file can have this path."""
    try:
        return _new(path)
    except ImpossiblePathError:
        return None


def _above(path: str) -> list[str]:
    """The directories above a path, nearest first."""
    directories = []
    while (above := ntpath.dirname(path)) != path:
        directories.append(above)
        path = above
    return directories


def _is_open(file: _File | None) -> bool:
    return file is not None and (file.content.readers > 0 or file.content.writers > 0)


@contextmanager
def _possible(doing: str, path: str) -> Iterator[None]:
    try:
        yield
    except ImpossiblePathError as error:
        raise error.as_storage_error(doing, path) from None


def _refused(doing: str, path: str, code: int) -> StorageError:
    remedy = "close the file wherever it is open" if code == errno.EACCES else None
    return StorageError(f"cannot {doing}: {os.strerror(code)}", errno=code, file=path, remedy=remedy)
