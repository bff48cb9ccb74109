"""Statistics and differences agree with NumPy's on whole arrays, for every element type."""

import math

import ml_dtypes
import numpy as np
import pytest

from milepost.tensor import DType
from milepost.tools.values.blocks import Block, BlockMemory, blocks_of, norm_of
from milepost.tools.values.small_statistics import statistics_of_parts
from milepost.tools.values.small_tensors import differences_of
from milepost.tools.values.statistics import TensorDifference, histogram_of, is_numeric, statistics_of

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


def any_bits(dtype, count):
    """Elements of any value that the type has: of floating-point numbers also NaN and infinities."""
    random = np.random.default_rng(3)
    if dtype.name in ("bool", "int1", "int2", "int4", "uint1", "uint2", "uint4"):
        return random.integers(0, 2, count).astype(dtype.numpy)
    return np.frombuffer(random.bytes(count * dtype.itemsize), dtype.numpy)


def numbers_of(array):
    """Elements as numbers that NumPy has statistics of."""
    if array.dtype.kind == "c":
        with np.errstate(invalid="ignore"):
            return np.abs(array.astype(np.complex128))
    return array if array.dtype in (np.float64, np.int64, np.uint64) else array.astype(np.float32)


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_statistics_of_all_values_of_a_type_are_those_of_numpy(dtype):
    array = any_bits(dtype, 300_000)
    if dtype.name in ("float64", "complex128"):
        # the squares of some numbers of these types are too large for their sum
        array = array.view(np.float64).clip(-1e100, 1e100).view(dtype.numpy)
    if dtype.numpy in (np.int32, np.uint32):
        array = array >> 9  # float32 has these numbers
    found = statistics_of(pieces(array, 299_000))
    numbers = numbers_of(array)
    finite = numbers[np.isfinite(numbers)]
    values = finite.astype(np.float64)
    assert (found.count, found.finite) == (300_000, finite.size)
    assert (found.nan, found.infinite) == (np.isnan(numbers).sum(), np.isinf(numbers).sum())
    assert found.zeros == (finite == 0).sum()
    assert (found.minimum, found.maximum) == (finite.min(), finite.max())
    assert found.mean == pytest.approx(values.mean(), rel=1e-9, abs=1e-12 * np.abs(values).mean())
    assert found.deviation == pytest.approx(values.std(), rel=1e-9)
    assert found.norm == pytest.approx(np.linalg.norm(values), rel=1e-12)


def test_statistics_that_are_joined_are_those_of_the_whole():
    array = np.random.default_rng(4).standard_normal(900_000) * 3 + 100
    array[[1, 400_000, 800_000]] = np.nan, np.inf, 0
    parts = [statistics_of([part]) for part in np.split(array, 3)]
    joined = statistics_of([])
    for part in parts:
        joined.join(part)
    whole = statistics_of([array]).to_dict()
    assert joined.to_dict() == {
        name: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value for name, value in whole.items()
    }


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


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 1e200])
def test_the_mean_of_numbers_whose_sum_is_too_large(value):
    array = np.full(200_000, value)
    for found in (statistics_of(pieces(array, 150_000)), *statistics_of_parts(array, [array.size])):
        assert found.mean == pytest.approx(value)
        assert not math.isnan(found.deviation)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16], ids=str)
def test_blocks_are_computed_in_the_same_memory(dtype):
    blocks = blocks_of(np.ones(300_000, dtype), BlockMemory())
    values = [block.values for block in blocks]
    assert len(values) == 3
    assert all(np.shares_memory(values[0], each) for each in values)


def test_a_histogram_counts_every_finite_element():
    array = np.random.default_rng(0).standard_normal(1000)
    counts = histogram_of(pieces(np.append(array, np.nan), 77), array.min(), array.max())
    assert counts == np.histogram(array, 40)[0].tolist()


def difference(first, second, width=7):
    found = TensorDifference()
    for a, b in zip(pieces(first, width), pieces(second, width), strict=True):
        found.add(Block(a), Block(b))
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


@pytest.mark.parametrize("dtype", ["g", "G"])
@pytest.mark.skipif(np.finfo("g").eps == np.finfo("d").eps, reason="longdouble is float64 here")
def test_differences_below_the_precision_of_float64_are_found(dtype):
    old = np.ones(3, dtype)
    new = old + np.array([0, np.finfo("g").eps, 0], dtype)
    assert difference(old, new).unequal == 1
    assert differences_of(old, new, [1, 2]).unequal.tolist() == [0, 1]


def test_dates_that_float64_rounds_differ():
    old = np.array([1 << 62, 1], "M8[ns]")
    new = old + np.array([1, 0], "m8[ns]")
    found = difference(old, new)
    assert (found.unequal, found.largest) == (1, 1.0)
    assert differences_of(old, new, [1, 1]).unequal.tolist() == [1, 0]
