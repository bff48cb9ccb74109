"""Statistics and differences agree with NumPy's on whole arrays, for every element type."""

import math

import ml_dtypes
import numpy as np
import pytest

from milepost.tensor import DType
from milepost.tools.statistics import Difference, histogram_of, is_numeric, norm_of, statistics_of

NUMERIC = [dtype for dtype in DType.all() if is_numeric(dtype)]
REAL = [dtype for dtype in NUMERIC if dtype.numpy.kind != "c"]


def pieces(array, width):
    return [array[start : start + width] for start in range(0, array.size, width)]


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_statistics_of_every_type(dtype):
    values = np.random.default_rng(0).integers(0, 2, 1000)
    array = values.astype(dtype.numpy)
    found = statistics_of(pieces(array, 300))
    plain = np.abs(array.astype(np.complex128))
    assert (found.count, found.zeros) == (1000, int((values == 0).sum()))
    assert found.mean == pytest.approx(plain.mean())
    assert found.deviation == pytest.approx(plain.std())
    assert found.norm == pytest.approx(np.linalg.norm(plain))
    assert (found.minimum, found.maximum) == (plain.min(), plain.max())


def test_what_is_not_finite_is_counted_and_left_out():
    found = statistics_of([np.array([np.nan, np.inf, -np.inf, 0.0, 3.0], np.float32)])
    assert (found.count, found.finite, found.nan, found.infinite, found.zeros) == (5, 2, 1, 2, 1)
    assert (found.minimum, found.maximum, found.mean) == (0.0, 3.0, 1.5)


def test_nothing_has_no_statistics():
    assert statistics_of([np.empty(0)]).to_dict()["mean"] is None
    assert statistics_of([np.array([np.nan])]).to_dict()["min"] is None


def test_large_numbers_lose_no_digits():
    found = statistics_of(pieces(np.float64([1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16]), 2))
    assert found.deviation == pytest.approx(math.sqrt(22.5))
    assert statistics_of([np.int64([(1 << 62) + 1])]).maximum == (1 << 62) + 1
    assert norm_of(np.float64([3e200, 4e200])) == pytest.approx(5e200)
    assert norm_of(np.float64([3e-200, 4e-200])) == pytest.approx(5e-200)


def test_a_histogram_counts_every_finite_element():
    array = np.random.default_rng(0).standard_normal(1000)
    counts = histogram_of(pieces(np.append(array, np.nan), 77), array.min(), array.max())
    assert counts == np.histogram(array, 40)[0].tolist()


def difference(first, second, width=7):
    found = Difference()
    for a, b in zip(pieces(first, width), pieces(second, width), strict=True):
        found.add(a, b)
    return found


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_a_difference_of_every_type(dtype):
    values = np.random.default_rng(1).integers(0, 2, 50)
    first, second = values.astype(dtype.numpy), (1 - values).astype(dtype.numpy)
    found = difference(first, second)
    assert (found.count, found.unequal, found.largest) == (50, 50, 1.0)
    assert found.relative == pytest.approx(math.sqrt(50) / np.linalg.norm(values))
    assert difference(first, first).to_dict() == {
        "elements": 50,
        "changed": 0,
        "max_abs_difference": 0.0,
        "relative_norm": 0.0,
    }


def test_a_difference_of_two_types():
    first = np.linspace(0, 1, 20, dtype=np.float32)
    found = difference(first, first.astype(ml_dtypes.bfloat16))
    assert 0 < found.largest < 1e-2
    assert difference(np.int32([1, 2]), np.float64([1, 2])).unequal == 0


def test_nan_equals_nan_and_nothing_else():
    assert difference(np.float32([np.nan, 1]), np.float32([-np.nan, 1])).unequal == 0
    assert difference(np.float32([np.nan, 1]), np.float32([1, 1])).largest == math.inf
    assert difference(np.float32([np.inf]), np.float32([np.inf])).unequal == 0


def test_differences_of_large_integers_are_exact():
    assert difference(np.int64([-(1 << 63)]), np.int64([(1 << 63) - 1])).largest == 2.0**64
    assert difference(np.int64([1 << 60]), np.int64([(1 << 60) + 1])).largest == 1.0
    assert difference(np.uint8([0]), np.uint8([255])).largest == 255.0


def test_complex_numbers_of_one_length_may_differ():
    found = difference(np.complex64([1, 1]), np.complex64([1j, 1]))
    assert (found.unequal, found.largest) == (1, pytest.approx(math.sqrt(2)))
