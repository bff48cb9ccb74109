"""The bytes of an HDF5 file as the HDF5 library reads them, without structures with which it does not end.

The library goes through the objects of a collection, which holds texts of any length, by the sizes that they have, and through the free space of a
heap, which holds the names of a group, by positions. It does not end if such a size is 0, or if such a position comes again. So
these structures are checked when they are read::

    collection  := "GCOL"  version:u8  reserved:u8^3  size:L  {object}  rest
    object      := index:u16  references:u16  reserved:u32  size:L  data       index 0: free space, and the size includes this header
    heap        := "HEAP"  version:u8  reserved:u8^3  size:L  first free:L  data:O
    free        := next free:L  size:L                                         at a position in the data; 1 stands for no next one

L and O are as in `headers`. Integers are little-endian. The data of an object are filled up to a multiple of 8 bytes. A rest that is shorter
than the header of an object is free space, too. Limits: a collection, and the data of a heap, may have 64 MiB.
Source: HDF5 File Format Specification 3.0, sections III.D and III.E; seen with HDF5 1.14.6, which reads each structure from its first byte.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Final

from milepost.errors import CorruptCheckpointError
from milepost.foreign.near_reads import NearReads
from milepost.storage import ReadableFile
from milepost.storage.interface import Buffer

_SIGNATURE: Final = 4
"""The bytes of a signature."""
_BEFORE_SIZE: Final = 8
"""The bytes of a collection, of an object in it, and of a heap, before the size."""
_ALIGNED: Final = 8
_NO_NEXT: Final = 1
_MOST: Final = 64 << 20
_BLOCK: Final = 8192
"""Bytes that are read at once for small structures."""


class Hdf5Reads(io.RawIOBase):
    """A `ReadableFile` with the methods of Python's files, for h5py. A read at its end returns no bytes.

    Args:
        file: The file, which must stay open.
        offset: The bytes of a position in the file.
        length: The bytes of a length.
    """

    def __init__(self, file: ReadableFile, offset: int, length: int) -> None:
        self._file = file
        self._offset = offset
        self._length = length
        self._position = 0
        self._near = NearReads(file, _BLOCK)
        self._checked: set[int] = set()
        self._checks: dict[bytes, Callable[[int], None]] = {b"GCOL": self._check_collection, b"HEAP": self._check_heap}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self._position, self._file.size)[whence]
        self._position = max(base + offset, 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Buffer) -> int:  # type: ignore[override]  # NumPy's arrays are buffers, too
        """Fills a buffer with the next bytes.

        Raises:
            CorruptCheckpointError: They begin a structure with which the library does not end.
        """
        target = memoryview(buffer).cast("B")
        size = max(min(len(target), self._file.size - self._position), 0)
        if size:
            read = self._near.read if size <= _BLOCK else self._file.read
            target[:size] = read(self._position, size)
            check = self._checks.get(bytes(target[:_SIGNATURE]))
            if check is not None and self._position not in self._checked:
                check(self._position)
                self._checked.add(self._position)
        self._position += size
        return size

    def _check_collection(self, start: int) -> None:
        header = _BEFORE_SIZE + self._length
        size = self._number(start + _BEFORE_SIZE, self._length)
        data = self._data(start, size, start)
        position = header
        while position + header <= len(data):
            length = int.from_bytes(data[position + _BEFORE_SIZE : position + header], "little")
            is_free = not int.from_bytes(data[position : position + 2], "little")
            taken = length if is_free else header + -(-length // _ALIGNED) * _ALIGNED
            if taken < header or taken > len(data) - position:
                raise _damaged(start, f"an object of {length} bytes at byte {start + position}")
            position += taken

    def _check_heap(self, start: int) -> None:
        positions = (start + _BEFORE_SIZE + number * self._length for number in range(3))
        size, free, begin = map(self._number, positions, (self._length, self._length, self._offset))
        data = self._data(begin, size, start)
        known: set[int] = set()
        while free != _NO_NEXT and free + self._length <= len(data):
            if free in known:
                raise _damaged(start, f"free space at byte {begin + free}, which follows itself")
            known.add(free)
            free = int.from_bytes(data[free : free + self._length], "little")

    def _number(self, at: int, width: int) -> int:
        """An integer, of bytes which the file may not have: then the library finds out that it is cut off."""
        return int.from_bytes(self._file.read(at, max(0, min(width, self._file.size - at))), "little")

    def _data(self, start: int, size: int, structure: int) -> memoryview:
        if size > min(self._file.size, _MOST) or start > self._file.size - size:
            raise _damaged(structure, f"{size} bytes at byte {start}")
        return memoryview(self._file.read(start, size))


def _damaged(position: int, found: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"the HDF5 file is damaged: a collection of names or texts, at byte {position}",
        expected="parts that lie in the file, one after the other",
        found=found,
        remedy="copy or download the file again",
    )
