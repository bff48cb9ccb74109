"""Finds out which tensors are stored already, by comparing their bytes with those in a file.

A checksum proves that bytes differ, and not that they are the same. So all bytes of a tensor are read and compared, in chunks. The
stored bytes must have the checksum of their entry, too. A tensor that was trained differs at its beginning, so the first bytes are
compared by themselves, and such a tensor costs one small read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import call
from typing import Final, NamedTuple

import numpy as np

from milepost.bundle.counting import counter
from milepost.bundle.format.entry import Entry
from milepost.bundle.memory import Array, Bytes, blocks, bytes_of
from milepost.bundle.parallel import THREADS, for_each
from milepost.bundle.transfer import CHUNK, SEGMENT, WORTH_THREADS
from milepost.coding.crc32c import combine, crc32c, mask
from milepost.errors import MilepostError
from milepost.storage import ReadableFile
from milepost.tensor import PiecewiseArray

_FIRST: Final = 4 << 10
"""The number of bytes that are compared before the others of a block."""
_WORD: Final = 8


class Candidate(NamedTuple):
    """A tensor of numbers, or a piece of one, and stored bytes that may be the same.

    Attributes:
        array: The elements.
        file: The file with the stored bytes.
        entry: The entry of the stored bytes, with the same element type and shape.
    """

    array: Array | PiecewiseArray
    file: ReadableFile
    entry: Entry


def find_unchanged(candidates: Sequence[Candidate], compared: Callable[[int], object] = int) -> list[bool]:
    """For each candidate, whether its elements are the stored bytes, and these are undamaged.

    Bytes that cannot be read are not the same. At most a mebibyte is read at once by each of a few threads.

    Args:
        candidates: The tensors to compare.
        compared: A function that is called with the number of bytes after each chunk that is the same, from several threads.

    Example:
        >>> from milepost.bundle.held import FileInMemory
        >>> from milepost.tensor import DType
        >>> old = np.float32([1, 2])
        >>> entry = Entry(DType.of(old), (2,), size=8, crc=mask(crc32c(old.tobytes())))
        >>> file = FileInMemory("old", old.tobytes())
        >>> find_unchanged([Candidate(array, file, entry) for array in (np.float32([1, 2]), np.float32([1, 3]))])
        [True, False]
    """
    count = counter()

    def done(read: int) -> None:
        compared(read)
        if count is not None:
            count(read)

    comparisons = [_Comparison(candidate) for candidate in candidates]
    size = sum(candidate.entry.size for candidate in candidates)
    buffers = threading.local()
    work = (each for comparison in comparisons for each in comparison.work(buffers, done))
    for_each(call, work, threads=THREADS if size >= WORTH_THREADS else 1)
    return [comparison.is_same() for comparison in comparisons]


class _Comparison:
    """The comparison of one tensor, with the checksum and the size of each block."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._differs = False
        self._blocks: list[tuple[int, int]] = []

    def work(self, buffers: threading.local, compared: Callable[[int], object]) -> Iterator[Callable[[], None]]:
        """Functions that compare the blocks, in the order of the file."""
        array, position = self._candidate.array, self._candidate.entry.offset
        if isinstance(array, np.ndarray) and array.flags.c_contiguous:
            array = array.reshape(-1)
        for block in blocks(array, SEGMENT):
            if self._differs:
                return
            self._blocks.append((0, block.nbytes))
            yield partial(self._compare_block, len(self._blocks) - 1, block, position, buffers, compared)
            position += block.nbytes

    def is_same(self) -> bool:
        """Whether all bytes are the same, after all work."""
        crc = 0
        for block, size in self._blocks:
            crc = combine(crc, block, size)
        return not self._differs and mask(crc) == self._candidate.entry.crc

    def _compare_block(
        self,
        number: int,
        block: Array | PiecewiseArray,
        position: int,
        buffers: threading.local,
        compared: Callable[[int], object],
    ) -> None:
        if not hasattr(buffers, "own"):
            buffers.own = np.empty(CHUNK, np.uint8)
        crc, length = 0, block.nbytes
        for chunk in self._chunks(block):
            stored = buffers.own[: len(chunk)]
            try:
                self._candidate.file.read_into(position, stored)
            except MilepostError:
                self._differs = True
            # another thread may have found a difference
            if self._differs or not _are_equal(chunk, stored):
                self._differs = True
                return
            crc = crc32c(stored, crc)
            compared(len(chunk))
            position += len(chunk)
        self._blocks[number] = crc, length

    def _chunks(self, block: Array | PiecewiseArray) -> Iterator[Bytes]:
        """The bytes of a block as they would be written, the first few by themselves."""
        first = True
        for part in blocks(block, CHUNK):
            chunk = bytes_of(np.ascontiguousarray(part, self._candidate.entry.dtype.numpy))
            if first and len(chunk) > _FIRST:
                yield chunk[:_FIRST]
                chunk = chunk[_FIRST:]
            yield chunk
            first = False


def _are_equal(one: Bytes, other: Bytes) -> bool:
    """Whether bytes are equal; eight at a time are compared twice as fast as one at a time."""
    words = len(one) // _WORD * _WORD
    return np.array_equal(one[:words].view(np.uint64), other[:words].view(np.uint64)) and np.array_equal(
        one[words:], other[words:]
    )
