"""Tensors that lie in several pieces."""

import numpy as np
import pytest

from milepost.tensor import Piece, PiecewiseArray
from tests.on_device import Far

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


def far(pieces):
    return [piece._replace(source=Far(piece.source)) for piece in pieces]


def test_what_lies_on_a_device_is_copied_into_memory_without_another_copy(monkeypatch):
    array = PiecewiseArray(WHOLE.dtype, WHOLE.shape, far(QUARTERS))
    monkeypatch.delattr(Far, "__getitem__")
    found = np.zeros_like(WHOLE)
    array.copy_into(found)
    assert np.array_equal(found, WHOLE)


@pytest.mark.parametrize("index", [slice(1, 3), (slice(0, 2), slice(3, 6)), 3])
def test_a_box_of_what_lies_on_a_device_is_that_of_the_whole(index):
    array = PiecewiseArray(WHOLE.dtype, WHOLE.shape, far(QUARTERS))
    assert np.array_equal(np.asarray(array[index]), WHOLE[index])


def test_an_array_is_on_a_device_if_all_its_pieces_are():
    all_far, one_here = far(QUARTERS), [*far(QUARTERS[1:]), QUARTERS[0]]
    assert PiecewiseArray(WHOLE.dtype, WHOLE.shape, all_far).on_device == [piece.source for piece in all_far]
    assert not PiecewiseArray(WHOLE.dtype, WHOLE.shape, one_here).on_device
    assert not PiecewiseArray(WHOLE.dtype, (0,), []).on_device


def test_a_number_on_a_device_is_an_array_without_dimensions():
    number = np.array(7.0)
    array = PiecewiseArray(number.dtype, (), [Piece((), (), Far(number))])
    found = np.zeros(())
    array.copy_into(found)
    assert (np.asarray(array).shape, np.asarray(array), found) == ((), 7, 7)


def test_a_number_in_one_piece_is_an_array_without_dimensions():
    array = PiecewiseArray(np.dtype(float), (), [Piece((), (), np.array(7.0))])
    assert type(np.asarray(array)) is np.ndarray
    assert type(array.copy()) is np.ndarray
