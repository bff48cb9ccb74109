"""What a place in a tree holds after a restore, of arrays of NumPy."""

import numpy as np

import milepost.adapters  # noqa: F401 - which registers the adapter of arrays
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.trees.adapters import leaf_successor, leaf_values
from milepost.graph.trees.places import CheckedLeaf, Leaf
from milepost.tensor.dtype import STRING


def successor(kind, live, saved):
    return leaf_successor(kind, live, {VARIABLE_VALUE: saved})


def test_an_array_is_replaced_by_a_new_one_which_can_be_written_to_if_it_could():
    live, saved = np.zeros(2), np.ones(2)
    new = successor(Leaf, live, saved)
    assert (new.tolist(), live.tolist(), new.flags.writeable) == ([1, 1], [0, 0], True)
    live.flags.writeable = False
    assert not successor(Leaf, live, np.ones(2)).flags.writeable


def test_an_array_keeps_its_element_type():
    new = successor(Leaf, np.zeros(2, np.float32), np.ones(2))
    assert (new.tolist(), new.dtype, new.flags.writeable) == ([1, 1], np.float32, True)


def test_a_number_of_numpy_is_replaced_by_one_of_its_type():
    new = successor(CheckedLeaf, np.float32(0), np.array(1.5, np.float32))
    assert (new, type(new)) == (1.5, np.float32)


def test_text_in_a_tree_is_a_string():
    (value,) = leaf_values(CheckedLeaf, "ab")
    assert (value.dtype, value.read().item()) == (STRING, b"ab")
