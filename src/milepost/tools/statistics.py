"""Statistics of a tensor and of the difference of two, computed chunk by chunk.

Means and deviations of chunks are joined by the method of Chan, Golub and LeVeque (1983), which loses no digits to large sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from milepost.bundle.memory import Array
from milepost.tensor import DType
from milepost.tools.histogram import Histogram

_PART: Final = 1 << 18
"""Elements that are computed with at once."""
_MOST_CANCELLED: Final = 1e-4
"""If the sum of squared deviations is a smaller part of the sum of squares, their difference would lose digits."""
_BARS: Final = " ▁▂▃▄▅▆▇█"
_BINS: Final = 40


def is_numeric(dtype: DType) -> bool:
    """Whether elements of a type are numbers to compute with."""
    return not dtype.is_bytes and dtype.numpy.names is None


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
    _deviations: float = 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of the finite elements, divided by their number."""
        return math.sqrt(self._deviations / self.finite) if self.finite else 0.0

    def add(self, elements: Array) -> None:
        """Takes more elements into account."""
        numbers = as_numbers(elements)
        self.count += numbers.size
        if not numbers.size:
            return
        least, most = numbers.min().item(), numbers.max().item()
        if not (math.isfinite(least) and math.isfinite(most)):
            is_finite = np.isfinite(numbers)
            nan = int(np.isnan(numbers).sum())
            self.nan += nan
            self.infinite += int(numbers.size - is_finite.sum()) - nan
            numbers = numbers[is_finite]
            if not numbers.size:
                return
            least, most = numbers.min().item(), numbers.max().item()
        self.zeros += int(numbers.size - np.count_nonzero(numbers != 0))
        self.minimum = least if self.minimum is None else min(self.minimum, least)
        self.maximum = most if self.maximum is None else max(self.maximum, most)
        values = numbers.astype(np.float64, copy=False)
        norm = norm_of(values)
        self.norm = math.hypot(self.norm, norm)
        with np.errstate(over="ignore"):
            mean = float(values.mean())
            deviations = norm * norm - mean * mean * values.size
            if not _MOST_CANCELLED * norm * norm < deviations < math.inf:
                deviations = float(np.square(values - mean).sum())
        if self.histogram is not None:
            counted = numbers if numbers.dtype == np.float32 else values
            self.histogram.add(counted, float(least), float(most))
        total = self.finite + values.size
        apart = mean - self.mean
        self._deviations += deviations + apart * apart * self.finite * values.size / total
        self.mean += apart * values.size / total
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


def parts_of(chunk: Array) -> Iterator[Array]:
    """Parts of a chunk that are small enough to compute with."""
    for start in range(0, chunk.size, _PART):
        yield chunk[start : start + _PART]


def statistics_of(chunks: Iterable[Array]) -> Statistics:
    """The statistics of all elements.

    Example:
        >>> found = statistics_of([np.array([3.0, 4.0]), np.array([np.nan])])
        >>> found.mean, found.deviation, found.norm, found.nan
        (3.5, 0.5, 5.0, 1)
    """
    found = Statistics()
    for chunk in chunks:
        for part in parts_of(chunk):
            found.add(part)
    return found


def histogram_of(chunks: Iterable[Array], least: float, most: float, bins: int = _BINS) -> list[int]:
    """How many finite elements are in each of some intervals of equal width.

    Example:
        >>> histogram_of([np.array([0.0, 1.0, 1.0, 4.0])], 0.0, 4.0, bins=4)
        [1, 2, 0, 1]
    """
    counts = np.zeros(bins, np.int64)
    for chunk in chunks:
        for part in parts_of(chunk):
            numbers = as_numbers(part).astype(np.float64)
            counts += np.histogram(numbers[np.isfinite(numbers)], bins, (float(least), float(most)))[0]
    return [int(each) for each in counts]


def bars(counts: list[int]) -> str:
    """Counts as a row of bars; the highest is the largest count.

    Example:
        >>> bars([0, 1, 4, 8])
        ' ▁▄█'
    """
    most = max(counts, default=0)
    return "".join(_BARS[math.ceil(count * (len(_BARS) - 1) / most)] if most else _BARS[0] for count in counts)


@dataclass(slots=True)
class Difference:
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

    def add(self, first: Array, second: Array) -> None:
        """Takes more elements into account."""
        self.count += first.size
        if first.dtype == second.dtype and np.array_equal(first.view(np.uint8), second.view(np.uint8)):
            if is_numeric(DType.of(first)):
                self.before = math.hypot(
                    self.before, norm_of(_finite(as_numbers(first).astype(np.float64, copy=False)))
                )
            return
        for a, b in zip(parts_of(first), parts_of(second), strict=True):
            self._add(a, b)

    def _add(self, first: Array, second: Array) -> None:
        old, new = comparable(first), comparable(second)
        if self._add_finite(old, new):
            return
        with np.errstate(invalid="ignore", over="ignore"):
            is_other = (old != new) & ~((old != old) & (new != new))
            changed_old, changed_new = old[is_other], new[is_other]
            self.unequal += int(is_other.sum())
            self.before = math.hypot(self.before, norm_of(_finite(np.abs(old).astype(np.float64, copy=False))))
            if not changed_old.size:
                return
            apart = apart_of(changed_old, changed_new)
        apart[~np.isfinite(apart)] = np.inf
        self.largest = max(self.largest, float(apart.max()))
        self.norm = math.hypot(self.norm, norm_of(apart))

    def _add_finite(self, old: Array, new: Array) -> bool:
        """Takes elements into account if all are finite numbers of float64, which is the quicker way. Otherwise does nothing."""
        if old.dtype != np.float64 or new.dtype != np.float64:
            return False
        with np.errstate(invalid="ignore", over="ignore"):
            apart = new - old
            before, norm = norm_of(old), norm_of(apart)
        if not (math.isfinite(before) and math.isfinite(norm)):
            return False
        self.unequal += int(np.count_nonzero(apart != 0))
        self.largest = max(self.largest, float(apart.max()), -float(apart.min()))
        self.norm, self.before = math.hypot(self.norm, norm), math.hypot(self.before, before)
        return True

    def to_dict(self) -> dict[str, Any]:
        """The difference for JSON."""
        return {
            "elements": self.count,
            "changed": self.unequal,
            "max_abs_difference": self.largest,
            "relative_norm": self.relative,
        }


def as_numbers(elements: Array) -> Array:
    """Elements in a type that NumPy computes with: wider floating-point numbers for small ones, absolute values of complex ones."""
    kind = elements.dtype.kind
    if kind == "c":
        return np.abs(elements.astype(np.complex128))
    if kind == "b":
        return elements.view(np.uint8)
    if kind in "iuf" and elements.dtype.itemsize >= (4 if kind == "f" else 1) and elements.dtype.isbuiltin == 1:
        return elements
    numbers = elements.astype(np.float32)  # all elements of the small types are numbers of float32, too
    return numbers.astype(np.int64) if _is_small_integer(elements.dtype) else numbers


def norm_of(values: Array) -> float:
    """The square root of the sum of squares, also where a square would be too large or too small for a number."""
    if not values.size:
        return 0.0
    with np.errstate(over="ignore", under="ignore"):
        # not `np.dot`, whose threads wait for each other where the machine is busy
        total = float(np.einsum("i,i->", values, values))
    if 1e-280 < total < math.inf:
        return math.sqrt(total)
    largest = float(np.abs(values).max())
    if not 0.0 < largest < math.inf:
        return largest
    return largest * math.sqrt(float(np.square(values / largest).sum()))


def comparable(elements: Array) -> Array:
    """Elements in a type in which no difference is lost."""
    if elements.dtype.kind == "c":
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
    found: Array = np.abs(old.astype(np.result_type(old, np.float64)) - new)
    return found.astype(np.float64)


def _finite(values: Array) -> Array:
    is_finite = np.isfinite(values)
    found: Array = values if is_finite.all() else values[is_finite]
    return found


def _is_small_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.name in ("int1", "int2", "int4", "uint1", "uint2", "uint4")
