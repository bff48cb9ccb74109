"""A part of a file, read like a file of its own."""

from __future__ import annotations

from milepost.storage import ReadableFile
from milepost.storage.buffers import byte_view, check_range
from milepost.storage.interface import Buffer


class Window:
    """A run of bytes in an open file, with the methods of `ReadableFile`.

    Args:
        file: The file, which must stay open.
        offset: The first byte.
        size: The number of bytes.
    """

    def __init__(self, file: ReadableFile, offset: int, size: int) -> None:
        self.path = file.path
        self.size = size
        self._file = file
        self._offset = offset

    def read(self, offset: int, length: int) -> bytes:
        check_range(self.path, offset, length, self.size)
        return self._file.read(self._offset + offset, length)

    def read_into(self, offset: int, buffer: Buffer) -> None:
        check_range(self.path, offset, len(byte_view(buffer)), self.size)
        self._file.read_into(self._offset + offset, buffer)

    def close(self) -> None:
        """Does nothing, because the file stays open."""
