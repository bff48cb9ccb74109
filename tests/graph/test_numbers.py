"""Python's numbers as values."""

import numpy as np
import pytest

from milepost.errors import MismatchError
from milepost.graph.numbers import NUMBERS, scalar_like, taken_by_scalar
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


def test_a_saved_number_of_the_live_type_is_taken_as_it_is():
    saved = np.array(1.5, np.float32)
    assert scalar_like(saved.dtype, saved, rounded=False) is saved


@pytest.mark.parametrize(
    ("saved", "rounded", "fits"), [(1.5, False, True), (0.1, False, False), (0.1, True, True), (1e300, True, False)]
)
def test_a_saved_number_of_another_type_fits_if_it_is_equal_or_may_be_rounded(saved, rounded, fits):
    live = np.dtype(np.float32)
    if fits:
        assert scalar_like(live, np.array(saved), rounded=rounded) == np.float32(saved)
    else:
        with pytest.raises(MismatchError, match="does not fit"):
            scalar_like(live, np.array(saved), rounded=rounded)
