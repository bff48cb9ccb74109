"""Tensors that lie in several pieces."""

import numpy as np
import pytest

from milepost.tensor import Piece, PiecewiseArray

WHOLE = np.arange(24).reshape(4, 6)
QUARTERS = [
    Piece((row, column), (2, 3), WHOLE[row : row + 2, column : column + 3]) for row in (0, 2) for column in (0, 3)
]


@pytest.fixture
def array():
    return PiecewiseArray(WHOLE.dtype, WHOLE.shape, QUARTERS)


@pytest.mark.parametrize("index", [slice(1, 3), (slice(0, 2), slice(3, 6)), (slice(1, 4), slice(2, 5)), slice(2, 2), 3])
def test_a_box_is_that_of_the_whole(array, index):
    assert np.array_equal(np.asarray(array[index]), WHOLE[index])
    assert array[index].shape == WHOLE[index].shape
    assert array[index].nbytes == WHOLE[index].nbytes


def test_a_box_of_a_box_is_counted_from_its_own_start(array):
    assert np.array_equal(np.asarray(array[1:4][1][2:5]), WHOLE[2, 2:5])


def test_rows_follow_each_other(array):
    assert np.array_equal(np.stack([np.asarray(row) for row in array]), WHOLE)


def test_what_lies_in_one_piece_is_not_copied(array):
    assert np.shares_memory(np.asarray(array[:2, :3]), WHOLE)


def test_a_copy_has_its_own_memory(array):
    assert not np.shares_memory(array[:2, :3].copy(), WHOLE)
    assert np.array_equal(array.copy(), WHOLE)
