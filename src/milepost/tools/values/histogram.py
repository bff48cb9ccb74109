"""A histogram of numbers that are seen once, so that a tensor need not be read twice."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from milepost.bundle.memory import Array

_BINS: Final = 128
_LEAST_EXPONENT: Final = -1070
_MOST_EXPONENT: Final = 1000
_MOST_EXPONENT_IN_FLOAT32: Final = 100
_MOST_IN_FLOAT32: Final = 1 << 22
_MOST_WAITING: Final = 1 << 14
"""Numbers that are counted at once, if only a part of all is counted."""
_DIGITS: Final = 48
"""Bits of the number of an interval, counted from zero; so it is exact in float64."""


class Bins(NamedTuple):
    """Intervals of equal width.

    Attributes:
        start: Where the first one begins.
        width: How wide each is.
        counts: How many numbers are in each. The first has the smallest one, and the last the largest, unless these were not counted.
    """

    start: float
    width: float
    counts: list[int]


class Histogram:
    """Counts numbers in intervals of equal width.

    The width is a power of two, and every interval begins at a multiple of it. Where a number falls outside of all intervals, two neighbours
    become one, until there is room. So no count is lost and none is a guess.

    Args:
        step: Counts only every ``step``-th number of those that come together. Of millions of numbers, a part says as much.

    Attributes:
        step: This number.

    Example:
        >>> histogram = Histogram()
        >>> histogram.add(np.array([1.0, 2.0, 2.5]), 1.0, 2.5)
        >>> histogram.add(np.array([9.0]), 9.0, 9.0)
        >>> histogram.bins(most=8)
        Bins(start=0.0, width=2.0, counts=[1, 2, 0, 0, 1])
    """

    __slots__ = ("_counts", "_exponent", "_first", "_last", "_start", "_waiting", "_waiting_ends", "step")

    def __init__(self, step: int = 1) -> None:
        self.step = step
        self._waiting: list[Array] = []
        self._waiting_ends: list[float] = []
        self._counts = np.zeros(0, np.int64)
        self._exponent = 0
        self._start = self._first = self._last = 0

    def add(self, values: Array, least: float, most: float) -> None:
        """Counts more numbers.

        Args:
            values: Finite numbers, in float64 or float32, always in the same; at least one.
            least: The smallest of them.
            most: The largest of them.
        """
        if self.step == 1:
            self._count(values, least, most)
            return
        # few at a time would take longer than all at once
        self._waiting.append(values[:: self.step].copy())
        self._waiting_ends += least, most
        if sum(map(len, self._waiting)) >= _MOST_WAITING:
            self._count_waiting()

    def _count_waiting(self) -> None:
        if self._waiting:
            values, ends = np.concatenate(self._waiting), self._waiting_ends
            self._waiting, self._waiting_ends = [], []
            self._count(values, min(ends), max(ends))

    def _count(self, values: Array, least: float, most: float) -> None:
        if not self._counts.size:
            self._counts = np.zeros(_BINS, np.int64)
            self._exponent = _exponent_of(least, most)
            self._start = self._first = self._last = self._place(least)
        # a coarser grid than that of the numbers so far may be needed to number the new ones exactly
        while self._exponent < _exponent_for_digits(least, most):
            self._halve()
        while max(self._place(most), self._last) - min(self._place(least), self._first) >= _BINS:
            self._halve()
        self._first = min(self._place(least), self._first)
        self._last = max(self._place(most), self._last)
        if self._first < self._start or self._last >= self._start + _BINS:
            self._move(self._first)
        if abs(self._start) > _MOST_IN_FLOAT32 or abs(self._exponent) > _MOST_EXPONENT_IN_FLOAT32:
            values = values.astype(np.float64, copy=False)
        # products with powers of two are exact, and so are differences of small whole numbers
        if abs(self._exponent) < _MOST_EXPONENT:
            scaled = values * values.dtype.type(2.0**-self._exponent)
        else:
            scaled = np.ldexp(values, -self._exponent)
        np.floor(scaled, out=scaled)
        np.subtract(scaled, values.dtype.type(self._start), out=scaled)
        self._counts += np.bincount(scaled.astype(np.int32), minlength=_BINS)

    def join(self, other: Histogram) -> None:
        """Counts what another histogram has counted.

        Args:
            other: The other one. Its intervals may become wider.
        """
        for each in (self, other):
            each._count_waiting()
        if not other._counts.size:
            return
        if not self._counts.size:
            self._exponent, self._start, self._counts = other._exponent, other._start, np.zeros(_BINS, np.int64)
            self._first, self._last = other._first, other._last
        while self._exponent < other._exponent:
            self._halve()
        while other._exponent < self._exponent:
            other._halve()
        while max(self._last, other._last) - min(self._first, other._first) >= _BINS:
            self._halve()
            other._halve()
        self._first, self._last = min(self._first, other._first), max(self._last, other._last)
        self._move(self._first)
        other._move(self._first)
        self._counts += other._counts

    def bins(self, most: int = 64) -> Bins | None:
        """The intervals from the smallest number to the largest one. None if nothing was counted, or if float64 cannot hold the ends.

        Args:
            most: How many there may be. Two neighbours become one until they are not more.
        """
        self._count_waiting()
        if not self._counts.size:
            return None
        while self._last - self._first >= most:
            self._halve()
        counts = self._counts[self._first - self._start : self._last - self._start + 1]
        try:
            start, _ = (math.ldexp(end, self._exponent) for end in (self._first, self._last + 1))
            return Bins(start, math.ldexp(1.0, self._exponent), counts.tolist())
        except OverflowError:
            return None

    def _place(self, number: float) -> int:
        """The number of the interval that a number is in."""
        return math.floor(math.ldexp(number, -self._exponent))

    def _halve(self) -> None:
        """Makes one interval of two."""
        odd = self._start & 1
        joined = np.zeros(_BINS + 2, np.int64)
        joined[odd : odd + _BINS] = self._counts
        halves = joined.reshape(-1, 2).sum(axis=1)
        self._counts = np.zeros(_BINS, np.int64)
        self._counts[: halves.size] = halves
        self._exponent += 1
        self._start, self._first, self._last = self._start >> 1, self._first >> 1, self._last >> 1

    def _move(self, start: int) -> None:
        """Lets the first interval be another one, if all that have numbers stay."""
        moved = np.zeros(_BINS, np.int64)
        used = np.nonzero(self._counts)[0]
        moved[used + (self._start - start)] = self._counts[used]
        self._counts, self._start = moved, start


def _exponent_of(least: float, most: float) -> int:
    """The width, as a power of two, with which the intervals between two numbers are half of all or fewer."""
    half = most / 2 - least / 2
    wanted = math.frexp(half)[1] + 2 - int(math.log2(_BINS)) if half else _LEAST_EXPONENT
    return max(wanted, _exponent_for_digits(least, most), _LEAST_EXPONENT)


def _exponent_for_digits(least: float, most: float) -> int:
    """The smallest width with which the numbers of intervals are exact."""
    return math.frexp(max(abs(least), abs(most)))[1] - _DIGITS
