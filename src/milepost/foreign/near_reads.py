"""Reads small runs of bytes that may be near each other in a file, many of them with one call of the system."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from milepost.coding.varints import Column
from milepost.storage import ReadableFile

_NEAR: Final = 4096
"""Bytes between two runs that are read together. A system reads as many from a disk for one run."""
_AT_ONCE: Final = 1 << 20
"""The most bytes between the first and the last of runs that are read together."""
_FEW: Final = 8
"""Runs that are faster to read one by one than to be put in order."""


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


def read_rows(file: ReadableFile, offsets: Column, length: int) -> Any:
    """Reads many runs of one length.

    Args:
        file: The file.
        offsets: Where each run begins, in any order.
        length: The bytes of a run, at least one.

    Returns:
        An array of bytes with a row for each run. Errors are those of `ReadableFile.read`.
    """
    if len(offsets) <= _FEW:
        runs = b"".join(file.read(offset, length) for offset in offsets.tolist())
        return np.frombuffer(runs, np.uint8).reshape(len(offsets), length)
    order = np.argsort(offsets)
    begins = offsets[order]
    rows = np.empty((len(begins), length), np.uint8)
    ends = np.append(np.flatnonzero(np.diff(begins) > _NEAR) + 1, len(begins))  # of runs that are near each other
    first = 0
    while first < len(begins):
        begin = begins[first]
        end = min(ends[np.searchsorted(ends, first, "right")], np.searchsorted(begins, begin + _AT_ONCE, "right"))
        at = begins[first:end] - begin
        data = np.frombuffer(file.read(int(begin), int(at[-1]) + length), np.uint8)
        rows[order[first:end]] = np.lib.stride_tricks.sliding_window_view(data, length)[at]
        first = end
    return rows
