"""Which values of a save are found not to be finite, whatever their sizes and memory layouts."""

import numpy as np
import pytest

from milepost.engine.plan import PlannedWrite
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.saving.examination import Examined, examined, joined
from milepost.tensor import DType, PiecewiseArray
from milepost.tensor.pieces import Piece

NAN, INF = float("nan"), float("inf")


def looked_at(arrays, counts=lambda name: True):
    """What is found in arrays, which are named by their numbers."""
    writes = [
        PlannedWrite(f"{number}/.ATTRIBUTES/VARIABLE_VALUE", -1, DType.of(array), array.shape)
        for number, array in enumerate(arrays)
    ]
    moved = []
    return examined(ObjectGraph(()), writes, arrays, counts, moved.append)


def bad(array, number):
    array = array.copy()
    array.reshape(-1)[-1] = number
    return array


def test_small_ones_among_many():
    """They are looked at together, by their types."""
    arrays = [np.ones(10, dtype) for dtype in (np.float32, np.float64, np.int64) for _ in range(5000)]
    arrays[4321], arrays[9999] = bad(arrays[4321], NAN), bad(arrays[9999], INF)
    assert looked_at(arrays) == Examined(("4321",), ("9999",))


@pytest.mark.parametrize("size", [1, 1 << 14, 1 << 20, (1 << 22) + 3])
def test_large_ones(size):
    """Which several threads look at. The last element is in another block than the first."""
    arrays = [np.ones(size, np.float32), bad(np.ones(size, np.float32), NAN), np.ones((3, size), np.float32)]
    assert looked_at(arrays) == Examined(("1",), ())


def test_other_memory_layouts():
    fortran = np.asfortranarray(bad(np.ones((300, 400)), NAN))
    strided = bad(np.ones((300, 400)), INF)[::-1, ::3]
    swapped = bad(np.ones(10, ">f4"), NAN)
    pieces = [Piece((0,), (5,), np.ones(5)), Piece((5,), (5,), bad(np.ones(5), NAN))]
    arrays = [fortran, strided, swapped, PiecewiseArray(np.dtype(float), (10,), pieces), np.float64(NAN).reshape(())]
    assert looked_at(arrays) == Examined(("0", "2", "3", "4"), ("1",))


def test_both_in_one_value_are_nan():
    assert looked_at([np.array([INF, NAN])]) == Examined(("0",), ())


def test_names_that_do_not_count_are_not_looked_at():
    assert looked_at([np.array(NAN), np.array(NAN)], lambda name: name != "0") == Examined(("1",), ())


def test_empty_arrays_and_strings_are_nothing():
    assert looked_at([np.empty((0, 3)), np.array([b"nan"], object), np.array(True)]) == Examined()


def test_what_several_processes_have_found_is_joined():
    parts = [Examined(("a",), ("b", "c")), [["b"], ["c", "d"]]]
    assert joined(parts) == Examined(("a", "b"), ("c", "d"))
