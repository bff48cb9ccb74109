"""Statistics of many small tensors are those of each by itself."""

import ml_dtypes
import numpy as np
import pytest

from milepost.tools.values.histogram import Histogram
from milepost.tools.values.small_statistics import histogram_of_part, statistics_of_parts
from milepost.tools.values.statistics import statistics_of

INF, NAN = np.inf, np.nan
PARTS = [
    [1.0, 2.0],
    [0.0],
    [NAN],
    [1.0, NAN, -INF, 0.0, -0.0],
    [NAN, INF],
    [1e300, -1e300],
    [1e-300, 0.0],
    [3.0, 4.0, 5.0],
    [1e16, 1e16 + 2, 1e16 + 4],
]


def same(found, expected):
    """Whether statistics are the same but for roundings."""
    for key, value in expected.to_dict().items():
        assert found.to_dict()[key] == (value if value is None else pytest.approx(value, rel=1e-12, nan_ok=True)), key


def test_numbers_of_every_kind():
    found = statistics_of_parts(np.concatenate(PARTS), [len(part) for part in PARTS])
    for part, statistics in zip(PARTS, found, strict=True):
        same(statistics, statistics_of([np.array(part)]))


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint64", "int64", "float16", "bfloat16", "float8_e4m3fn", "int4", "complex64"]
)
def test_every_element_type(dtype):
    elements = np.array([0, 1, 1, 3, 5, 1]).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    for part, statistics in zip((elements[:4], elements[4:]), statistics_of_parts(elements, [4, 2]), strict=True):
        same(statistics, statistics_of([part]))


def test_the_ends_of_large_integers_are_exact():
    (found,) = statistics_of_parts(np.array([2**63 - 1, -(2**63)]), [2])
    assert (found.minimum, found.maximum) == (-(2**63), 2**63 - 1)


def test_parts_without_a_finite_number():
    found = statistics_of_parts(np.array([NAN, INF]), [1, 1])
    assert [(each.count, each.nan, each.infinite, each.minimum) for each in found] == [(1, 1, 0, None), (1, 0, 1, None)]


def test_a_histogram_counts_what_is_finite():
    expected = Histogram()
    expected.add(np.array([1.0, 2.0, 2.5]), 1.0, 2.5)
    assert histogram_of_part(np.array([1.0, NAN, 2.0, 2.5, INF])).bins() == expected.bins()
    assert histogram_of_part(np.array([NAN])) is None
