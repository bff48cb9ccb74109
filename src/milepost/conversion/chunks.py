"""Reads one tensor of any checkpoint piece by piece, so that memory does not grow with its size."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from milepost.bundle import BundleReader, Entry
from milepost.bundle.memory import Array, bytes_of, swap_bytes
from milepost.bundle.problems import wrong_checksum
from milepost.bundle.transfer import read_chunks
from milepost.coding.crc32c import combine, crc32c, mask
from milepost.engine.layouts.checkpoints import LaidOutReader
from milepost.errors import MilepostError
from milepost.foreign import ForeignReader
from milepost.storage import ReadableFile
from milepost.tensor import DType, TensorSlice, TensorSpec

_BLOCK: Final = 256 << 20
"""Bytes that are read at once of a tensor that was saved in pieces."""


def chunks_of(reader: BundleReader, key: str) -> Iterator[Array]:
    """The elements of a tensor in the order of memory.

    A tensor in one run of bytes takes a megabyte of memory. One that was saved in pieces takes up to 256 MiB or its longest row. Strings are
    read at once, and so is a tensor of a machine with the other byte order, of a checkpoint from before TensorFlow 0.12, or of Orbax.

    Args:
        reader: The open checkpoint.
        key: The key.

    Yields:
        Flat arrays. Each is valid until the next one is read.

    Raises:
        CorruptCheckpointError: The bytes are damaged. A wrong checksum is found after the last array.
    """
    if isinstance(reader, ForeignReader):
        yield from reader.chunks(key)
        return
    extent = reader.extent(key)
    if extent is None:
        entry = reader.entry(key)
        is_in_parts = entry.slices or (isinstance(reader, LaidOutReader) and reader.made_of(key))
        if is_in_parts and not entry.dtype.is_bytes:
            for box in _rows(entry.spec):
                yield reader.read(key, box).reshape(-1)
        else:
            yield reader.read(key).reshape(-1)
        return
    sections = Sections(key, *extent)
    yield from sections.chunks(0, sections.count)
    sections.check()


class Sections:
    """A tensor in one run of bytes, which is read in sections: on several threads if need be.

    Args:
        key: The key.
        file: The file, as `BundleReader.extent` gives it.
        entry: The entry of the tensor, likewise.

    Attributes:
        count: The number of elements.
    """

    def __init__(self, key: str, file: ReadableFile, entry: Entry) -> None:
        self._key, self._file, self._entry = key, file, entry
        self._width = entry.dtype.itemsize
        self._checksums: dict[int, tuple[int, int]] = {}
        self.count = entry.size // self._width

    def chunks(self, start: int, stop: int) -> Iterator[Array]:
        """The elements of one section, in flat arrays of a megabyte. Each is valid until the next one is read.

        Args:
            start: The first element.
            stop: The element after the last.

        Raises:
            CorruptCheckpointError: The file is shorter than its index says.
            StorageError: The file cannot be read.
        """
        crc, first, size = 0, start * self._width, (stop - start) * self._width
        try:
            for chunk in read_chunks(self._file, self._entry.offset + first, size) if size else ():
                crc = crc32c(chunk, crc)
                yield chunk.view(self._entry.dtype.numpy)
        except MilepostError as error:
            raise error.with_context(key=self._key) from None
        self._checksums[first] = crc, size

    def check(self) -> None:
        """Compares the checksum, after sections that are the whole tensor were read, each to its end.

        Raises:
            CorruptCheckpointError: The bytes are damaged.
        """
        (crc, _), *others = (self._checksums[first] for first in sorted(self._checksums))
        for other, size in others:
            crc = combine(crc, other, size)
        if mask(crc) != self._entry.crc:
            raise wrong_checksum(self._key, self._file.path, self._entry.offset, self._entry.crc, crc)


def _rows(spec: TensorSpec) -> Iterator[TensorSlice]:
    """Boxes of rows of a tensor, one after the other."""
    if not spec.shape or spec.nbytes <= _BLOCK:
        yield TensorSlice.whole(len(spec.shape))
        return
    rows = max(1, _BLOCK // (spec.nbytes // spec.shape[0]))
    rest = TensorSlice.whole(len(spec.shape) - 1).extents
    for start in range(0, spec.shape[0], rows):
        yield TensorSlice(((start, min(rows, spec.shape[0] - start)), *rest))


def together(runs: Sequence[Iterator[Array]]) -> Iterator[tuple[Array, ...]]:
    """Runs of as many elements each, divided alike.

    Example:
        >>> runs = [np.arange(5)], [np.arange(2), np.arange(2, 5)]
        >>> [(len(a), len(b)) for a, b in together([iter(run) for run in runs])]
        [(2, 2), (3, 3)]
    """
    parts = [np.empty(0) for _ in runs]
    while True:
        for index, run in enumerate(runs):
            # a run is read to its end, where its checksum is compared
            while not parts[index].size and (more := next(run, None)) is not None:
                parts[index] = more
        count = min(part.size for part in parts)
        if not count:
            return
        yield tuple(part[:count] for part in parts)
        parts = [part[count:] for part in parts]


def little_endian(chunk: Array, dtype: DType) -> Any:
    """The bytes of some elements as most formats have them."""
    data = np.ascontiguousarray(chunk)
    if sys.byteorder == "big":
        data = data.copy()
        swap_bytes(bytes_of(data), dtype)
    return bytes_of(data)
