"""Whether numbers are finite, in every element type that may hold others."""

import ml_dtypes
import numpy as np
import pytest

from milepost.tensor.finite import FINITE, Nonfinite, can_be_nonfinite, is_finite, nonfinite_in

FLOATS = [
    *map(
        np.dtype,
        ("float16", "float32", "float64", "longdouble", "complex64", "complex128", "clongdouble", ">f4", ">f2"),
    ),
    *(
        np.dtype(getattr(ml_dtypes, name))
        for name in (
            "bfloat16",
            "float8_e5m2",
            "float8_e4m3fn",
            "float8_e4m3fnuz",
            "float8_e4m3b11fnuz",
            "float8_e5m2fnuz",
        )
    ),
]
NAMES = [each.str if each.kind in "fc" else each.name for each in FLOATS]


@pytest.mark.parametrize("dtype", FLOATS, ids=NAMES)
@pytest.mark.parametrize("count", [1, 7, 1000])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_one_number_among_many_is_found(dtype, count, number):
    """At each end and in the middle. Some types have no infinity, and NaN in its place."""
    assert can_be_nonfinite(dtype)
    for position in {0, count // 2, count - 1}:
        values = np.ones(count, np.float64)
        values[position] = number
        with np.errstate(all="ignore"):
            array = values.astype(dtype)
        expected = Nonfinite(bool(np.isnan(array).any()), bool(np.isinf(array).any()))
        assert nonfinite_in(array) == expected
        assert is_finite(array) == (expected == FINITE)


@pytest.mark.parametrize("dtype", FLOATS, ids=NAMES)
def test_numbers_whose_sum_is_too_large_are_finite(dtype):
    largest = np.finfo(dtype).max if dtype.kind in "fc" and dtype.itemsize > 1 else ml_dtypes.finfo(dtype).max
    array = np.full((3, 100), largest, dtype)
    assert nonfinite_in(array) == FINITE


@pytest.mark.parametrize("dtype", FLOATS, ids=NAMES)
def test_an_empty_array_is_finite(dtype):
    assert is_finite(np.empty((0, 3), dtype))


@pytest.mark.parametrize("part", [complex(np.nan, 0), complex(0, np.inf)])
def test_both_parts_of_a_complex_number_count(part):
    array = np.array([1 + 1j, part])
    assert nonfinite_in(array) == Nonfinite(bool(np.isnan(array).any()), bool(np.isinf(array).any()))
    assert not is_finite(array)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint64", "O", "S3", "M8[s]", "m8[s]", "V4", [("x", "f4")], ml_dtypes.int4]
)
def test_other_elements_are_not_looked_at(dtype):
    assert not can_be_nonfinite(np.dtype(dtype))
