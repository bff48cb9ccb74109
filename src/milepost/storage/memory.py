"""Files in the memory of this process, for tests and for temporary checkpoints."""

from __future__ import annotations

import errno
import os
import posixpath
import time
from collections import Counter
from collections.abc import Sequence
from typing import Self

from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, StorageError
from milepost.forks import ForkableLock
from milepost.storage.buffers import byte_view, check_range
from milepost.storage.interface import Buffer
from milepost.storage.paths import ImpossiblePathError, check_possible, with_slashes


class _MemoryFile:
    def __init__(self) -> None:
        self.data = bytearray()
        self.modified = time.time()
        self.writers = 0
        # a bytearray cannot grow while another thread has a view of it
        self.lock = ForkableLock()


class MemoryFile:
    """A file in memory that is open for reading."""

    def __init__(self, path: str, content: _MemoryFile) -> None:
        self.path = path
        self._content = content
        self.size = len(content.data)

    def read(self, offset: int, length: int) -> bytes:
        with self._content.lock, memoryview(self._content.data) as view:
            check_range(self.path, offset, length, len(view))
            return bytes(view[offset : offset + length])

    def read_into(self, offset: int, buffer: Buffer) -> None:
        target = byte_view(buffer)
        with self._content.lock, memoryview(self._content.data) as view:
            check_range(self.path, offset, len(target), len(view))
            target[:] = view[offset : offset + len(target)]

    def close(self) -> None:
        pass


class MemoryWriter:
    """A new file in memory."""

    def __init__(self, path: str, content: _MemoryFile) -> None:
        self.path = path
        self._content = content
        self._open = True
        content.writers += 1

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        views = [byte_view(buffer) for buffer in buffers]
        end = offset + sum(map(len, views))
        if not self._open:
            raise _refused("write", self.path, errno.EBADF)
        with self._content.lock:
            data = self._content.data
            if end > offset:
                data.extend(bytes(max(0, end - len(data))))
            for view in views:
                data[offset : offset + len(view)] = view
                offset += len(view)
            self._content.modified = time.time()

    def sync(self) -> None:
        if not self._open:
            raise _refused("make durable", self.path, errno.EBADF)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._content.writers -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class MemoryStorage:
    """A tree of files in memory. Two objects share no files.

    As in an object store, a file may be created in a directory that does not exist.

    Example:
        >>> storage = MemoryStorage()
        >>> with storage.create("a/b") as file:
        ...     file.write(0, [b"12", b"3"])
        >>> storage.open("a/b").read(1, 2)
        b'23'
    """

    def __init__(self) -> None:
        self._files: dict[str, _MemoryFile] = {}
        self._above: Counter[str] = Counter()
        """How many files are below a directory."""
        self._directories: set[str] = {".", "/"}
        self._lock = ForkableLock()

    def open(self, path: str) -> MemoryFile:
        with self._lock:
            content = self._files.get(_place(path))
        if content is not None:
            return MemoryFile(path, content)
        if self.is_directory(path):
            raise CorruptCheckpointError(
                "cannot be read as part of a checkpoint", file=path, expected="a file", found="a directory"
            )
        raise CheckpointNotFoundError("cannot open for reading: there is no such file", file=path)

    def create(self, path: str) -> MemoryWriter:
        place = _new_place("create", path)
        with self._lock:
            if place in self._files or self._is_directory(place):
                raise _refused("create", path, errno.EEXIST)
            self._check_parents("create", path)
            content = _MemoryFile()
            self._put(place, content)
        return MemoryWriter(path, content)

    def rename(self, source: str, target: str) -> None:
        doing = f"rename to {target}"
        _new_place(doing, source, target)
        with self._lock:
            if self._is_directory(_place(target)):
                raise _refused(doing, source, errno.EISDIR)
            self._check_parents(doing, target)
            content = self._pop(_place(source))
            if content is None:
                raise CheckpointNotFoundError(f"cannot {doing}: there is no such file", file=source)
            self._pop(_place(target))
            self._put(_place(target), content)

    def link(self, source: str, target: str) -> None:
        doing = f"link to {target}"
        _new_place(doing, source, target)
        with self._lock:
            if _place(target) in self._files or self._is_directory(_place(target)):
                raise _refused(doing, source, errno.EEXIST)
            self._check_parents(doing, target)
            content = self._files.get(_place(source))
            if content is None and self._is_directory(_place(source)):
                raise _refused(doing, source, errno.EPERM)
            if content is None:
                raise CheckpointNotFoundError(f"cannot {doing}: there is no such file", file=source)
            self._put(_place(target), content)

    def remove(self, path: str) -> None:
        with self._lock:
            if self._pop(_place(path)) is None and self._is_directory(_place(path)):
                raise _refused("remove", path, errno.EISDIR)

    def make_directory(self, path: str) -> None:
        place = _new_place("make a directory", path)
        with self._lock:
            if place in self._files:
                raise _refused("make a directory", path, errno.EEXIST)
            self._check_parents("make a directory", path)
            self._directories.update((place, *_parents(place)))

    def sync_directory(self, path: str) -> None:
        if not self.is_directory(path):
            raise CheckpointNotFoundError("cannot make the names durable: there is no such directory", file=path)

    def list(self, directory: str) -> list[str]:
        place = _place(directory)
        with self._lock:
            everything = (*self._files, *self._directories)
        return sorted({posixpath.basename(part) for path in everything for part in _within(path, place)})

    def is_file(self, path: str) -> bool:
        return _place(path) in self._files

    def is_directory(self, path: str) -> bool:
        with self._lock:
            return self._is_directory(_place(path))

    def modified(self, path: str) -> float:
        with self._lock:
            content = self._files.get(_place(path))
        if content is None:
            raise CheckpointNotFoundError("cannot look at: there is no such file", file=path)
        return content.modified

    def in_use(self, path: str) -> bool:
        with self._lock:
            content = self._files.get(_place(path))
        return content is not None and content.writers > 0

    def _is_directory(self, place: str) -> bool:
        return place in self._directories or self._above[place] > 0

    def _put(self, place: str, content: _MemoryFile) -> None:
        self._files[place] = content
        self._above.update(_parents(place))

    def _pop(self, place: str) -> _MemoryFile | None:
        content = self._files.pop(place, None)
        if content is not None:
            self._above.subtract(_parents(place))
        return content

    def _check_parents(self, doing: str, path: str) -> None:
        if any(parent in self._files for parent in _parents(_place(path))):
            raise _refused(doing, path, errno.ENOTDIR)


def _place(path: str) -> str:
    return posixpath.normpath(with_slashes(path))


def _new_place(doing: str, path: str, target: str | None = None) -> str:
    """The place of a new file. The path must be one that a file can have."""
    try:
        check_possible(path if target is None else target)
    except ImpossiblePathError as error:
        raise error.as_storage_error(doing, path) from None
    return _place(path)


def _parents(place: str) -> list[str]:
    """The directories above, nearest first."""
    parents = []
    while (parent := posixpath.dirname(place) or ".") != place:
        parents.append(parent)
        place = parent
    return parents


def _within(path: str, directory: str) -> list[str]:
    """The file or directory in a directory that leads to a path, as a list of one. Empty if the path is not below it."""
    return [part for part in (path, *_parents(path)) if part != directory and _parents(part)[:1] == [directory]]


def _refused(doing: str, path: str, code: int) -> StorageError:
    return StorageError(f"cannot {doing}: {os.strerror(code)}", errno=code, file=path)
