"""Files in this process's memory, for tests and for checkpoints that need not last."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Self

from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, StorageError
from milepost.storage.interface import Buffer


class _Content:
    def __init__(self) -> None:
        self.data = bytearray()
        self.modified = time.time()
        self.writers = 0


class MemoryFile:
    """A file in memory open for reading."""

    def __init__(self, path: str, content: _Content) -> None:
        self.path = path
        self._content = content
        self.size = len(content.data)

    def read(self, offset: int, length: int) -> bytes:
        data = bytes(memoryview(self._content.data)[offset : offset + length])
        if len(data) < length:
            raise CorruptCheckpointError(
                "the file is truncated",
                file=self.path,
                expected=f"at least {offset + length} bytes",
                found=f"{self.size} bytes",
            )
        return data

    def read_into(self, offset: int, buffer: Buffer) -> None:
        view = memoryview(buffer).cast("B")
        view[:] = self.read(offset, len(view))

    def close(self) -> None:
        pass


class MemoryWriter:
    """A new file in memory."""

    def __init__(self, path: str, content: _Content) -> None:
        self.path = path
        self._content = content
        self._open = True
        self._lock = threading.Lock()
        content.writers += 1

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        joined = b"".join(memoryview(buffer).cast("B") for buffer in buffers)
        with self._lock:
            data = self._content.data
            data.extend(bytes(max(0, offset + len(joined) - len(data))))
            data[offset : offset + len(joined)] = joined
            self._content.modified = time.time()

    def sync(self) -> None:
        pass

    def close(self) -> None:
        if self._open:
            self._open = False
            self._content.writers -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class MemoryStorage:
    """A tree of files in memory. Two of them share nothing.

    Example:
        >>> storage = MemoryStorage()
        >>> with storage.create("a/b") as file:
        ...     file.write(0, [b"12", b"3"])
        >>> storage.open("a/b").read(1, 2)
        b'23'
    """

    def __init__(self) -> None:
        self._files: dict[str, _Content] = {}
        self._directories: set[str] = {"", ".", "/"}

    def open(self, path: str) -> MemoryFile:
        if path not in self._files:
            if self.is_directory(path):
                raise CorruptCheckpointError(
                    "cannot be read as part of a checkpoint", file=path, expected="a file", found="a directory"
                )
            raise CheckpointNotFoundError("cannot open for reading: there is no such file", file=path)
        return MemoryFile(path, self._files[path])

    def create(self, path: str) -> MemoryWriter:
        if path in self._files:
            raise StorageError("cannot create: the file exists", file=path)
        content = self._files[path] = _Content()
        return MemoryWriter(path, content)

    def rename(self, source: str, target: str) -> None:
        if source not in self._files:
            raise CheckpointNotFoundError(f"cannot rename to {target}: there is no such file", file=source)
        self._files[target] = self._files.pop(source)

    def remove(self, path: str) -> None:
        self._files.pop(path, None)

    def make_directory(self, path: str) -> None:
        parts = path.split("/")
        self._directories.update("/".join(parts[:n]) for n in range(1, len(parts) + 1))

    def sync_directory(self, path: str) -> None:
        pass

    def list(self, directory: str) -> list[str]:
        start = directory.rstrip("/") + "/" if directory not in ("", ".") else ""
        inside = {
            path[len(start) :].partition("/")[0]
            for path in (*self._files, *self._directories)
            if path.startswith(start)
        }
        return sorted(inside - {"", "."})

    def is_file(self, path: str) -> bool:
        return path in self._files

    def is_directory(self, path: str) -> bool:
        start = path.rstrip("/") + "/"
        return path in self._directories or any(name.startswith(start) for name in self._files)

    def modified(self, path: str) -> float:
        if path not in self._files:
            raise CheckpointNotFoundError("cannot look at: there is no such file", file=path)
        return self._files[path].modified

    def in_use(self, path: str) -> bool:
        return path in self._files and self._files[path].writers > 0
