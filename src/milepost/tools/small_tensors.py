"""Compares many small tensors of two checkpoints at once.

To read, check and compare one tensor takes some dozens of microseconds, whatever its size. Here neighbours are read together, and tensors of
the same element types are compared as one array. What is found of each is what `Difference` finds of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from milepost.bundle import BundleReader
from milepost.bundle.counting import counter
from milepost.bundle.problems import wrong_checksum
from milepost.bundle.reader import IndexedReader
from milepost.coding.crc32c import crc32c, mask
from milepost.errors import MilepostError
from milepost.tensor import DType
from milepost.tools.statistics import Difference, apart_of, comparable, is_numeric
from milepost.tools.tensors import Row

_SMALL: Final = 16 << 10
"""Bytes of the largest tensor that is compared together with others."""
_BATCH: Final = 4 << 20
"""Bytes of the tensors that are in memory at once, of each checkpoint."""
_GAP: Final = 4 << 10
"""Bytes between two tensors that are faster to read than to skip."""
_JOINED: Final = 2 << 20
"""Bytes that are read together."""

Pair = tuple[Row, Row]


class SmallTensors:
    """The small tensors of an open checkpoint that lie in its files as in memory.

    Args:
        reader: The open checkpoint.
    """

    def __init__(self, reader: BundleReader) -> None:
        self._reader = reader
        self._places: dict[str, int] = {}
        if not isinstance(reader, IndexedReader) or reader.is_swapped:
            return
        keys, self._columns = reader.columns()
        is_small = (self._columns.size > 0) & (self._columns.size <= _SMALL)
        is_small[self._columns.others] = False
        self._places = {keys[place]: place for place in np.flatnonzero(is_small).tolist()}

    def __contains__(self, row: Row) -> bool:
        return row.key in self._places and is_numeric(row.dtype)

    def read(self, rows: Sequence[Row]) -> list[memoryview]:
        """Reads and checks tensors.

        Raises:
            MilepostError: As for `BundleReader.read`.
        """
        places = np.array([self._places[row.key] for row in rows], np.int64)
        shards, offsets = self._columns.shard[places], self._columns.offset[places]
        sizes, expected = self._columns.size[places], self._columns.crc[places]
        found: list[memoryview] = [memoryview(b"")] * len(rows)
        order = np.lexsort((offsets, shards))
        starts, ends = offsets[order], (offsets + sizes)[order]
        is_apart = (
            (shards[order][1:] != shards[order][:-1]) | (starts[1:] - ends[:-1] > _GAP) | (starts[1:] < ends[:-1])
        )
        is_apart |= starts[1:] // _JOINED != starts[:-1] // _JOINED
        for group in np.split(order, np.flatnonzero(is_apart) + 1):
            self._read_group(rows, group, offsets, sizes, found)
        crcs = np.fromiter(map(crc32c, found), np.int64, len(found))
        for place in np.flatnonzero(_masked(crcs) != expected).tolist():
            key = rows[place].key
            extent = self._reader.extent(key)
            assert extent is not None, "these tensors have one"
            raise wrong_checksum(key, extent[0].path, extent[1].offset, extent[1].crc, int(crcs[place]))
        return found

    def _read_group(self, rows: Sequence[Row], group: Any, offsets: Any, sizes: Any, found: list[memoryview]) -> None:
        """Reads neighbours in one go."""
        key = rows[group[0]].key
        extent = self._reader.extent(key)
        assert extent is not None, "these tensors have one"
        start, last = int(offsets[group[0]]), rows[group[-1]].key
        end = int(offsets[group[-1]] + sizes[group[-1]])
        self._reader.extent(last)  # raises an error if it lies beyond the end of the file
        try:
            data = memoryview(extent[0].read(start, end - start))
        except MilepostError as error:
            raise error.with_context(key=key) from None
        for place, at, size in zip(
            group.tolist(), (offsets[group] - start).tolist(), sizes[group].tolist(), strict=True
        ):
            found[place] = data[at : at + size]
        if (count := counter()) is not None:
            count(int(sizes[group].sum()))


def compared(first: SmallTensors, second: SmallTensors, pairs: Sequence[Pair]) -> Iterator[tuple[Pair, Difference]]:
    """Reads pairs of tensors of one shape, and yields those whose values differ, with how much they do.

    Args:
        first: Where the first of each pair is.
        second: Where the second is.
        pairs: The tensors, all of which are contained in these.

    Raises:
        MilepostError: As for `SmallTensors.read`.
    """
    by_types: dict[tuple[DType, DType], list[Pair]] = {}
    for pair in pairs:
        by_types.setdefault((pair[0].dtype, pair[1].dtype), []).append(pair)
    for (old_type, new_type), alike in by_types.items():
        for batch in _batches(alike):
            old, new = first.read([old for old, _ in batch]), second.read([new for _, new in batch])
            if old_type is new_type:
                different = [place for place, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
                if not different:
                    continue
                batch = [batch[place] for place in different]
                old, new = [old[place] for place in different], [new[place] for place in different]
            a = np.frombuffer(b"".join(old), old_type.numpy)
            b = np.frombuffer(b"".join(new), new_type.numpy)
            yield from zip(batch, differences_of(a, b, [len(data) // old_type.itemsize for data in old]), strict=True)


def differences_of(old: Any, new: Any, counts: Sequence[int]) -> list[Difference]:
    """How much parts of two arrays differ.

    Args:
        old: The elements of the first tensors, one after the other.
        new: Those of the second tensors.
        counts: How many elements each tensor has, at least one.

    Example:
        >>> one, other = differences_of(np.array([3.0, 4.0, 5.0]), np.array([3.0, 4.0, 7.0]), [2, 1])
        >>> one.unequal, other.unequal, other.largest, other.relative
        (0, 1, 2.0, 0.4)
    """
    lengths = np.array(counts, np.int64)
    starts = np.cumsum(lengths) - lengths
    a, b = comparable(old), comparable(new)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        is_other = (a != b) & ~((a != a) & (b != b))
        apart = np.zeros(len(a))
        apart[is_other] = apart_of(a[is_other], b[is_other])
        apart[~np.isfinite(apart)] = np.inf
        before = np.abs(a).astype(np.float64)
        before[~np.isfinite(before)] = 0.0
        columns = (
            lengths,
            np.add.reduceat(is_other, starts, dtype=np.int64),
            np.maximum.reduceat(apart, starts),
            _norms(apart, starts, lengths),
            _norms(before, starts, lengths),
        )
    return [Difference(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _batches(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    batch: list[Pair] = []
    size = 0
    for pair in pairs:
        batch.append(pair)
        size += max(pair[0].size, pair[1].size)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _norms(values: Any, starts: Any, lengths: Any) -> Any:
    """The square root of the sum of squares of each part. Each part is first divided by its largest value, so squares do not overflow."""
    largest = np.maximum.reduceat(values, starts)
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    squares = np.add.reduceat(np.square(values / np.repeat(scale, lengths)), starts)
    return np.where(np.isfinite(largest), scale * np.sqrt(squares), largest)


def _masked(crcs: Any) -> Any:
    """What `mask` gives for each checksum."""
    return mask(crcs & 0xFFFFFFFF)
