"""Tensors that several processes hold together, as one of them sees them."""

import numpy as np
import pytest

from milepost.errors import MismatchError, UnsupportedError
from milepost.tensor import Shard, ShardedArray, TensorSlice

FLOAT = np.dtype(np.float32)


def half():
    return ShardedArray(FLOAT, (4, 2), [Shard((2, 0), np.ones((2, 2), FLOAT), (1,))], "halves")


def test_a_part_is_not_the_whole():
    assert half().whole() is None


def test_a_box_of_everything_is_the_whole():
    array = np.ones((4, 2), FLOAT)
    assert ShardedArray(FLOAT, (4, 2), [Shard((0, 0), array, (0,))], "all").whole() is array


def test_a_tensor_without_elements_is_whole_everywhere():
    whole = ShardedArray(FLOAT, (0, 2), [], "nothing").whole()
    assert whole is not None
    assert (whole.shape, whole.dtype) == ((0, 2), FLOAT)


def test_a_box_is_read_where_it_is_held():
    assert half().read(TensorSlice(((3, 1), (0, 2)))).tolist() == [[1, 1]]
    target = np.zeros((1, 2), FLOAT)
    half().read_into(TensorSlice(((3, 1), (0, 2))), target)
    assert target.tolist() == [[1, 1]]


def test_a_box_of_another_process_is_refused():
    with pytest.raises(MismatchError, match="this process does not hold this box"):
        half().read(TensorSlice(((1, 2), (0, 2))))


def test_a_part_is_no_array():
    with pytest.raises(UnsupportedError, match="other processes hold parts of this tensor"):
        np.asarray(half())
