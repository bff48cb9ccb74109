"""Reads bytes, numbers and lines one after the other from a run of bytes in memory."""

from __future__ import annotations

import struct
from typing import Any, Final

from milepost.errors import CorruptCheckpointError

U8, U16, U32, U64 = map(struct.Struct, ("<B", "<H", "<I", "<Q"))
I32, F64 = struct.Struct("<i"), struct.Struct(">d")
"""The forms of numbers in pickled data."""
_FIRST_LINE: Final = 1 << 12
"""How many bytes are searched first for the end of a line."""


class ByteStream:
    """A run of pickled bytes.

    Args:
        data: The bytes.

    Attributes:
        data: The bytes.
        position: Where the next value begins.
        ended_early: Whether reading failed because there are no more bytes.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = data
        self._view = memoryview(data)
        self.position = 0
        self.ended_early = False

    def __len__(self) -> int:
        return len(self.data)

    def take(self, count: int) -> memoryview:
        """The next bytes.

        Raises:
            CorruptCheckpointError: There are fewer.
        """
        end = self.position + count
        if count < 0 or end > len(self.data):
            self.ended_early = True
            raise CorruptCheckpointError(
                "the pickled data ends too early", expected=f"{count} more bytes at byte {self.position}"
            )
        part = self._view[self.position : end]
        self.position = end
        return part

    def byte(self) -> int:
        """The next byte, as a number."""
        try:
            found = self.data[self.position]
        except IndexError:
            return self.take(1)[0]  # raises an error
        self.position += 1
        return found

    def number(self, form: struct.Struct) -> Any:
        """The next bytes, as a number of this form."""
        position = self.position
        end = position + form.size
        if end > len(self.data):
            self.take(form.size)  # raises an error
        self.position = end
        return form.unpack_from(self.data, position)[0]

    def line(self) -> str:
        """The bytes up to the end of the line, as text."""
        return self.line_of_bytes().decode()

    def line_of_bytes(self) -> bytes:
        """The bytes up to the end of the line."""
        size = _FIRST_LINE
        while True:
            limit = min(self.position + size, len(self.data))
            text, end, _ = bytes(self._view[self.position : limit]).partition(b"\n")
            if end:
                self.position += len(text) + 1
                return text
            if limit == len(self.data):
                self.ended_early = True
                raise CorruptCheckpointError(
                    "the pickled data has a line without an end", found=f"byte {self.position}"
                )
            size *= 4
