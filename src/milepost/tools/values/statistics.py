"""Statistics of a tensor and of the difference of two, computed block by block.

A block is small enough to stay in the cache of a processor while it is gone over several times (`milepost.tools.values.blocks`). Means and deviations
of blocks are joined by the method of Chan, Golub and LeVeque (1983), which loses no digits to large sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from milepost.bundle.memory import Array
from milepost.tensor import DType
from milepost.tools.values.blocks import (
    COMPLEX,
    Block,
    BlockMemory,
    as_numbers,
    blocks_of,
    is_wider,
    norm_of,
    sum_of_squares,
)
from milepost.tools.values.histogram import Histogram

_MOST_CANCELLED: Final = 1e-4
"""If the sum of squared deviations is a smaller part of the sum of squares, their difference would lose digits."""
BARS: Final = " ▁▂▃▄▅▆▇█"
BARS_IN_ASCII: Final = " .:-=+*%#"
"""Bars for a terminal whose encoding has no others."""
_BINS: Final = 40


def is_numeric(dtype: DType) -> bool:
    """Whether elements of a type are numbers to compute with."""
    return not dtype.is_bytes and dtype.numpy.type is not np.void


@dataclass(slots=True)
class Statistics:
    """Statistics of numbers. Of complex numbers they are those of the absolute values.

    Attributes:
        count: The number of elements.
        finite: How many are finite. The other statistics are those of finite elements.
        nan: How many are NaN.
        infinite: How many are infinite.
        zeros: How many are zero.
        minimum: The smallest, or None if there is none.
        maximum: The largest, or None if there is none.
        mean: Their mean.
        norm: The square root of the sum of their squares.
        deviations: The sum of the squares of their differences from the mean.
        histogram: What counts the finite elements, if they are to be counted.
    """

    count: int = 0
    finite: int = 0
    nan: int = 0
    infinite: int = 0
    zeros: int = 0
    minimum: float | int | None = None
    maximum: float | int | None = None
    mean: float = 0.0
    norm: float = 0.0
    histogram: Histogram | None = None
    deviations: float = 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of the finite elements, divided by their number."""
        return math.sqrt(self.deviations / self.finite) if self.finite else 0.0

    def add(self, block: Block) -> None:
        """Takes more elements into account."""
        self.count += block.elements.size
        self.nan += block.nan
        self.infinite += block.infinite
        numbers, least, most = block.finite, block.least, block.most
        if not numbers.size:
            return
        if least <= 0 <= most:
            self.zeros += numbers.size - _count_nonzero(numbers, block.room)
        values, norm = block.values, block.norm
        with np.errstate(over="ignore"):
            mean = float(np.add.reduce(values)) / values.size
            if not math.isfinite(mean):
                largest = float(max(abs(least), abs(most)))
                mean = largest * (float(np.add.reduce(values / largest)) / values.size)
            deviations = norm * norm - mean * mean * values.size
            if not _MOST_CANCELLED * norm * norm < deviations < math.inf:
                apart = np.subtract(values, mean, out=block.room.array("apart", np.float64, values.size))
                deviations = sum_of_squares(apart)
        if self.histogram is not None:
            counted = numbers if numbers.dtype == np.float32 else values
            self.histogram.add(counted, float(least), float(most))
        self._join(values.size, least, most, mean, norm, deviations)

    def join(self, other: Statistics) -> None:
        """Takes the elements of others into account, whose statistics these are."""
        self.count += other.count
        self.nan += other.nan
        self.infinite += other.infinite
        self.zeros += other.zeros
        if other.minimum is None or other.maximum is None:
            return
        if self.histogram is not None and other.histogram is not None:
            self.histogram.join(other.histogram)
        self._join(other.finite, other.minimum, other.maximum, other.mean, other.norm, other.deviations)

    def _join(self, size: int, least: float, most: float, mean: float, norm: float, deviations: float) -> None:
        """Takes finite elements into account, by what is known of all of them."""
        self.minimum = least if self.minimum is None else min(self.minimum, least)
        self.maximum = most if self.maximum is None else max(self.maximum, most)
        self.norm = math.hypot(self.norm, norm)
        total = self.finite + size
        if not self.finite:
            self.mean, self.deviations = mean, deviations
        else:
            apart = mean - self.mean
            self.deviations += deviations + apart * apart * self.finite * size / total
            self.mean += apart * (size / total)
        self.finite = total

    def to_dict(self) -> dict[str, Any]:
        """The statistics for JSON."""
        return {
            "count": self.count,
            "finite": self.finite,
            "nan": self.nan,
            "infinite": self.infinite,
            "zeros": self.zeros,
            "min": self.minimum,
            "max": self.maximum,
            "mean": self.mean if self.finite else None,
            "std": self.deviation if self.finite else None,
            "norm": self.norm if self.finite else None,
        }


def statistics_of(chunks: Iterable[Array]) -> Statistics:
    """The statistics of all elements.

    Example:
        >>> statistics = statistics_of([np.array([3.0, 4.0]), np.array([np.nan])])
        >>> statistics.mean, statistics.deviation, statistics.norm, statistics.nan
        (3.5, 0.5, 5.0, 1)
    """
    statistics, room = Statistics(), BlockMemory()
    for chunk in chunks:
        for block in blocks_of(chunk, room):
            statistics.add(block)
    return statistics


def histogram_of(chunks: Iterable[Array], least: float, most: float, bins: int = _BINS) -> list[int]:
    """How many finite elements are in each of some intervals of equal width.

    Example:
        >>> histogram_of([np.array([0.0, 1.0, 1.0, 4.0])], 0.0, 4.0, bins=4)
        [1, 2, 0, 1]
    """
    counts, room = np.zeros(bins, np.int64), BlockMemory()
    for chunk in chunks:
        for block in blocks_of(chunk, room):
            counts += np.histogram(block.values, bins, (float(least), float(most)))[0]
    return [int(each) for each in counts]


def bars(counts: list[int], letters: str = BARS) -> str:
    """Counts as a row of bars; the highest is the largest count.

    Args:
        counts: The counts.
        letters: The bars, the lowest first.

    Example:
        >>> bars([0, 1, 4, 8])
        ' ▁▄█'
    """
    most = max(counts, default=0)
    return "".join(letters[math.ceil(count * (len(letters) - 1) / most)] if most else letters[0] for count in counts)


@dataclass(slots=True)
class TensorDifference:
    """How much two tensors of one shape differ. An element that is NaN in both is equal.

    Attributes:
        count: The number of elements.
        unequal: How many elements are unequal.
        largest: The largest absolute difference; infinite where one element is not finite and the other is another number.
        norm: The square root of the sum of the squares of the differences.
        before: The same of the elements of the first tensor.
    """

    count: int = 0
    unequal: int = 0
    largest: float = 0.0
    norm: float = 0.0
    before: float = 0.0

    @property
    def relative(self) -> float:
        """The norm of the difference, divided by that of the first tensor; infinite if that is zero and the tensors differ."""
        return self.norm / self.before if self.before else math.inf if self.norm else 0.0

    def add(self, first: Block, second: Block) -> None:
        """Takes more elements into account."""
        self.count += first.elements.size
        old, new = first.elements, second.elements
        if old.dtype == new.dtype and np.array_equal(old.view(np.uint8), new.view(np.uint8)):
            self.before = math.hypot(self.before, first.norm)
        elif not self._add_finite(first, second):
            self._add_any(first, second)

    def join(self, other: TensorDifference) -> None:
        """Takes the elements of another difference into account."""
        self.count += other.count
        self.unequal += other.unequal
        self.largest = max(self.largest, other.largest)
        self.norm = math.hypot(self.norm, other.norm)
        self.before = math.hypot(self.before, other.before)

    def _add_finite(self, first: Block, second: Block) -> bool:
        """Takes elements into account if all are finite and no integers, which is the quicker way. Otherwise does nothing."""
        if not (first.is_real and second.is_real):
            return False
        with np.errstate(over="ignore"):
            apart = np.subtract(
                second.values, first.values, out=second.room.array("apart", np.float64, first.values.size)
            )
            norm = norm_of(apart)
        if not math.isfinite(norm):
            return False
        self.unequal += _count_nonzero(apart, second.room)
        self.largest = max(self.largest, float(apart.max()), -float(apart.min()))
        self.norm, self.before = math.hypot(self.norm, norm), math.hypot(self.before, first.norm)
        return True

    def _add_any(self, first: Block, second: Block) -> None:
        old, new = comparable(first.elements), comparable(second.elements)
        with np.errstate(invalid="ignore", over="ignore"):
            is_other = (old != new) & ~((old != old) & (new != new))
            changed_old, changed_new = old[is_other], new[is_other]
            self.unequal += int(is_other.sum())
            self.before = math.hypot(self.before, first.norm)
            if not changed_old.size:
                return
            apart = apart_of(changed_old, changed_new)
        apart[~np.isfinite(apart)] = np.inf
        self.largest = max(self.largest, float(apart.max()))
        self.norm = math.hypot(self.norm, norm_of(apart))

    def to_dict(self) -> dict[str, Any]:
        """The difference for JSON."""
        return {
            "elements": self.count,
            "changed": self.unequal,
            "max_abs_difference": self.largest,
            "relative_norm": self.relative,
        }


def _count_nonzero(numbers: Array, room: BlockMemory) -> int:
    """How many numbers are not zero. NumPy counts booleans much faster than numbers."""
    return int(np.count_nonzero(np.not_equal(numbers, 0, out=room.array("booleans", np.bool_, numbers.size))))


def comparable(elements: Array) -> Array:
    """Elements in a type in which no difference is lost. Those of dates and durations are counts of their unit."""
    kind = elements.dtype.kind
    if kind in "mM":
        return elements.view(np.int64)
    if is_wider(elements.dtype):
        return elements
    if kind in COMPLEX:
        return elements.astype(np.complex128)
    numbers = as_numbers(elements)
    return numbers if numbers.dtype.kind in "iu" else numbers.astype(np.float64, copy=False)


def apart_of(old: Array, new: Array) -> Array:
    """Absolute differences. Those of integers are exact before they are rounded once."""
    if old.dtype.kind in "iu" and new.dtype.kind in "iu":
        high, low = np.maximum(old, new), np.minimum(old, new)
        if old.dtype == new.dtype:
            unsigned = f"u{old.dtype.itemsize}"
            exact: Array = high.view(unsigned) - low.view(unsigned)
            return exact.astype(np.float64)
    differences: Array = np.abs(old.astype(np.result_type(old, np.float64)) - new)
    return differences.astype(np.float64)
