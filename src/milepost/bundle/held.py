"""Content of closed files that a reader keeps in memory."""

from __future__ import annotations

from typing import Final

from milepost.storage import ReadableFile
from milepost.storage.buffers import byte_view, check_range
from milepost.storage.interface import Buffer

_CHUNK: Final = 1 << 20


class FileInMemory:
    """The content of a file that was closed.

    Args:
        path: The path with which the file was opened.
        data: All bytes of the file.
    """

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.size = len(data)
        self._data = data

    def read(self, offset: int, length: int) -> bytes:
        check_range(self.path, offset, length, self.size)
        return self._data[offset : offset + length]

    def read_into(self, offset: int, buffer: Buffer) -> None:
        target = byte_view(buffer)
        target[:] = self.read(offset, len(target))

    def close(self) -> None:
        """Does nothing, because the file is closed already."""


def have_same_bytes(first: ReadableFile, second: ReadableFile) -> bool:
    """Whether two files have the same bytes.

    Example:
        >>> have_same_bytes(FileInMemory("a", b"text"), FileInMemory("b", b"test"))
        False
    """
    return first.size == second.size and all(
        first.read(start, length) == second.read(start, length)
        for start in range(0, first.size, _CHUNK)
        for length in (min(_CHUNK, first.size - start),)
    )
