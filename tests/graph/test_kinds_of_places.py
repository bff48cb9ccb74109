"""What kind of place the member of a tree has is remembered by its type."""

import numpy as np

from milepost.graph.adapter import Adapter, register, unregister
from milepost.graph.trees.places import Leaf, TreeNode, kind_of_place


class Grid:
    shape = (3,)
    dtype = np.dtype("float32")


class GridAdapter(Adapter):
    leaf = True
    functional = True

    def handles(self, kind):
        return kind is Grid


def test_it_follows_the_adapters_that_are_registered():
    adapter = GridAdapter()
    before = kind_of_place(Grid())
    register(adapter)
    try:
        assert (before, kind_of_place(Grid())) == (None, Leaf)
    finally:
        unregister(adapter)
    assert kind_of_place(Grid()) is None


def test_an_empty_container_has_none_although_another_of_its_type_has_one():
    assert (kind_of_place({"a": 1}), kind_of_place({})) == (TreeNode, None)
