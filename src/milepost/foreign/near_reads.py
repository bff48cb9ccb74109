"""Reads small runs of bytes that may be near each other in a file, many of them with one call of the system."""

from __future__ import annotations

from milepost.storage import ReadableFile


class NearReads:
    """Reads runs of bytes. The block that begins with one is kept, since the next ones may be in it.

    Args:
        file: The file, which must stay open.
        block: How many bytes are read at once, unless more are asked for.
    """

    def __init__(self, file: ReadableFile, block: int) -> None:
        self._file = file
        self._size = block
        self._start = 0
        self._block = b""

    def read(self, offset: int, length: int) -> memoryview:
        """The bytes of a run. Errors are those of `ReadableFile.read`."""
        at = offset - self._start
        if not 0 <= at <= len(self._block) - length:
            self._block = self._file.read(offset, max(length, min(self._size, self._file.size - offset)))
            self._start, at = offset, 0
        return memoryview(self._block)[at : at + length]
