"""Python's numbers as values."""

import pytest

from milepost.graph.numbers import NUMBERS, taken_by_scalar
from milepost.tensor import DType


@pytest.mark.parametrize(
    ("live", "kinds"),
    [
        ("int8", {int}),
        ("uint64", {int}),
        ("float32", {int, float}),
        ("complex64", {complex}),
        ("bool", set()),
        ("string", set()),
    ],
)
def test_which_saved_numbers_an_array_without_dimensions_takes(live, kinds):
    assert taken_by_scalar(DType.of(live)) == {NUMBERS[kind] for kind in kinds}
