"""Statistics of many small tensors at once: what `milepost.tools.values.statistics` finds of each of them, computed for all in one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from milepost.coding.varints import Column
from milepost.tools.values.blocks import as_numbers, norms_of
from milepost.tools.values.histogram import Histogram
from milepost.tools.values.statistics import Statistics


def statistics_of_parts(elements: Any, counts: Sequence[int] | Column) -> list[Statistics]:
    """The statistics of each part of an array.

    Args:
        elements: The elements of all parts, one part after the other.
        counts: How many elements each part has, at least one.

    Example:
        >>> first, second = statistics_of_parts(np.array([3.0, 4.0, np.nan, 7.0]), [3, 1])
        >>> first.mean, first.deviation, first.norm, first.nan, second.maximum
        (3.5, 0.5, 5.0, 1, 7.0)
    """
    lengths = np.array(counts, np.int64)
    numbers, nan, finite = as_numbers(elements), np.zeros(len(lengths), np.int64), lengths
    is_finite = np.isfinite(numbers)
    if not is_finite.all():
        first = np.cumsum(lengths) - lengths
        nan = np.add.reduceat(np.isnan(numbers), first, dtype=np.int64)
        finite = np.add.reduceat(is_finite, first, dtype=np.int64)
        numbers = numbers[is_finite]
    # parts without a finite element have no place in the array any more
    kept = np.flatnonzero(finite)
    columns = zip(*_columns(numbers, finite[kept]), strict=True) if len(kept) else iter(())
    totals = zip(lengths.tolist(), finite.tolist(), nan.tolist(), (lengths - finite - nan).tolist(), strict=True)
    return [Statistics(*total, *next(columns)) if total[1] else Statistics(*total) for total in totals]


def _columns(numbers: Any, sizes: Column) -> list[list[Any]]:
    """Zeros, minimum, maximum, mean, norm, nothing for the histogram, and deviations of each part of an array of finite numbers."""
    starts = np.cumsum(sizes) - sizes
    least, most = np.minimum.reduceat(numbers, starts), np.maximum.reduceat(numbers, starts)
    zeros = np.add.reduceat(numbers == 0, starts, dtype=np.int64)
    values = numbers.astype(np.float64, copy=False)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        means = np.add.reduceat(values, starts) / sizes
        sizes_of_values = np.abs(values)
        largest = np.maximum.reduceat(sizes_of_values, starts)
        norms = norms_of(sizes_of_values, largest, starts, sizes)
        if not np.isfinite(means).all():
            scale = np.where(largest > 0, largest, 1.0)
            means = scale * (np.add.reduceat(values / np.repeat(scale, sizes), starts) / sizes)
        deviations = np.add.reduceat(np.square(values - np.repeat(means, sizes)), starts)
    return [
        zeros.tolist(),
        least.tolist(),
        most.tolist(),
        means.tolist(),
        norms.tolist(),
        [None] * len(sizes),
        deviations.tolist(),
    ]


def histogram_of_part(elements: Any) -> Histogram | None:
    """What counts the finite elements of a small tensor; None if there are none."""
    numbers = as_numbers(elements)
    numbers = numbers[np.isfinite(numbers)]
    if not numbers.size:
        return None
    histogram = Histogram()
    values = numbers if numbers.dtype == np.float32 else numbers.astype(np.float64, copy=False)
    histogram.add(values, float(numbers.min()), float(numbers.max()))
    return histogram
