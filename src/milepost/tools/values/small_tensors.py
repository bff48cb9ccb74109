"""Compares many small tensors of two checkpoints at once.

To read, check and compare one tensor takes some dozens of microseconds, whatever its size. Here neighbours are read together, and tensors of
the same element types are compared as one array. What is found of each is what `Difference` finds of it.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from milepost.bundle import BundleReader
from milepost.bundle.counting import counter
from milepost.coding.varints import Column
from milepost.errors import MilepostError
from milepost.tensor import DType
from milepost.tools.values.blocks import norms_of
from milepost.tools.values.differences import Differences
from milepost.tools.values.statistics import apart_of, comparable, is_numeric
from milepost.tools.values.tensors import Tensors

_SMALL: Final = 16 << 10
"""Bytes of the largest tensor that is compared together with others."""
_BATCH: Final = 1 << 20
"""Bytes of the tensors that are in memory at once, of each checkpoint."""
_GAP: Final = 4 << 10
"""Bytes between two tensors that are faster to read than to skip."""
_JOINED: Final = 2 << 20
"""Bytes that are read together."""


class SmallTensors:
    """The small tensors of an open checkpoint that lie in its files as in memory.

    Args:
        reader: The open checkpoint.
        tensors: All its tensors.
    """

    def __init__(self, reader: BundleReader, tensors: Tensors) -> None:
        self._reader = reader
        self._tensors = tensors
        self._file, self._start = tensors.catalogue.file, tensors.catalogue.start
        is_numeric_spec = np.array([*(is_numeric(spec.dtype) for spec in tensors.specs), False])
        self._is_small = tensors.catalogue.is_run & (tensors.size > 0) & (tensors.size <= _SMALL)
        self._is_small &= is_numeric_spec[tensors.spec]

    def contains(self, places: Column) -> Any:
        """Which of some tensors are among them."""
        return self._is_small[places]

    def types(self, places: Column) -> tuple[list[DType], Column]:
        """The element types of some tensors: all that occur, and for each tensor which of them is its own."""
        types = list(dict.fromkeys(spec.dtype for spec in self._tensors.specs))
        numbers = np.array([types.index(spec.dtype) for spec in self._tensors.specs], np.int64)
        return types, numbers[self._tensors.spec[places]]

    def sizes(self, places: Column) -> Column:
        """The bytes of some tensors."""
        return self._tensors.size[places]

    def read(self, places: Column) -> list[bytes]:
        """Reads and checks tensors.

        Args:
            places: Their positions, none of them twice.

        Raises:
            MilepostError: As for `BundleReader.read`.
        """
        tensors = self._tensors
        by_file = np.lexsort((self._start[places], self._file[places]))
        order = places[by_file]
        files, starts = self._file[order], self._start[order]
        ends = starts + tensors.size[order]
        is_apart = (files[1:] != files[:-1]) | (starts[1:] - ends[:-1] > _GAP) | (starts[1:] < ends[:-1])
        is_apart |= starts[1:] // _JOINED != starts[:-1] // _JOINED
        data: list[bytes] = []
        for group in np.split(order, np.flatnonzero(is_apart) + 1):
            data += self._read_group(group)
        for number in tensors.catalogue.unproven(order, data).tolist():
            data[number] = self._reader.read(tensors.keys[order[number]]).tobytes()  # raises an error if it is damaged
        if not (np.diff(by_file) == 1).all():
            data = [data[number] for number in np.argsort(by_file).tolist()]
        return data

    def _read_group(self, group: Column) -> list[bytes]:
        """Reads neighbours in one go."""
        keys, sizes, starts = self._tensors.keys, self._tensors.size[group], self._start[group]
        start, end = int(starts[0]), int(starts[-1] + sizes[-1])
        try:
            file = self._tensors.catalogue.files[int(self._file[group[0]])]
            if end > file.size:
                for position in group.tolist():
                    self._reader.extent(keys[position])  # raises an error that names the first that is not in the file
            data = file.read(start, end - start)
        except MilepostError as error:
            raise error.with_context(key=keys[group[0]]) from None
        if (count := counter()) is not None:
            count(int(sizes.sum()))
        begins = starts - start
        return [data[at:stop] for at, stop in zip(begins.tolist(), (begins + sizes).tolist(), strict=True)]


def compare_small(
    first: SmallTensors, second: SmallTensors, old: Column, new: Column
) -> Iterator[tuple[Column, Differences]]:
    """Reads pairs of tensors of one shape, and yields which of them differ, with how much they do. Pairs of two element types are always yielded.

    Args:
        first: Where the first of each pair is.
        second: Where the second is.
        old: The position of the first of each pair. All are contained in ``first``.
        new: The position of the second.

    Raises:
        MilepostError: As for `SmallTensors.read`.
    """
    (old_types, old_type), (new_types, new_type) = first.types(old), second.types(new)
    kinds, kind = np.unique(old_type * len(new_types) + new_type, return_inverse=True)
    for number, both in enumerate(kinds.tolist()):
        types = old_types[both // len(new_types)], new_types[both % len(new_types)]
        pairs = np.flatnonzero(kind == number)
        sizes = np.maximum(first.sizes(old[pairs]), second.sizes(new[pairs]))
        for batch in np.split(pairs, np.flatnonzero(np.diff(np.cumsum(sizes) // _BATCH)) + 1):
            a, b = first.read(old[batch]), second.read(new[batch])
            if types[0] is types[1]:
                if a == b:
                    continue
                is_other = np.fromiter(map(operator.ne, a, b), bool, len(a))
                batch = batch[is_other]
                a, b = list(itertools.compress(a, is_other)), list(itertools.compress(b, is_other))
            counts = first.sizes(old[batch]) // types[0].itemsize
            first_elements = np.frombuffer(b"".join(a), types[0].numpy)
            second_elements = np.frombuffer(b"".join(b), types[1].numpy)
            yield batch, differences_of(first_elements, second_elements, counts)


def differences_of(old: Any, new: Any, counts: Sequence[int] | Column) -> Differences:
    """How much parts of two arrays differ.

    Args:
        old: The elements of the first tensors, one after the other.
        new: Those of the second tensors.
        counts: How many elements each tensor has, at least one.

    Example:
        >>> differences = differences_of(np.array([3.0, 4.0, 5.0]), np.array([3.0, 4.0, 7.0]), [2, 1])
        >>> differences.unequal.tolist(), differences.largest.tolist(), differences.relative.tolist()
        ([0, 1], [0.0, 2.0], [0.0, 0.4])
    """
    lengths = np.array(counts, np.int64)
    starts = np.cumsum(lengths) - lengths
    a, b = comparable(old), comparable(new)
    with np.errstate(all="ignore"):
        before, apart = np.abs(a).astype(np.float64, copy=False), np.abs(a - b) if a.dtype.kind == "f" else None
        if apart is not None and np.isfinite(apart).all():
            is_other = apart != 0
        else:
            is_other = (a != b) & ~((a != a) & (b != b))
            apart = np.zeros(len(a))
            apart[is_other] = apart_of(a[is_other], b[is_other])
            apart[~np.isfinite(apart)] = np.inf
            before[~np.isfinite(before)] = 0.0
        largest = np.maximum.reduceat(apart, starts)
        return Differences.joined(
            lengths,
            np.add.reduceat(is_other, starts, dtype=np.int64),
            largest,
            norms_of(apart, largest, starts, lengths),
            norms_of(before, np.maximum.reduceat(before, starts), starts, lengths),
        )
