"""What kind of place the member of a tree has is remembered by its type."""

import numpy as np

from milepost.graph.adapter import Adapter, register, unregister
from milepost.graph.trees.places import Leaf, Tree, TreeNode, is_final, kind_of_place


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


class OddGridAdapter(GridAdapter):
    def tracks(self, obj):
        return getattr(obj, "is_tracked", False)


def test_an_object_that_its_adapter_does_not_track_has_none():
    adapter, tracked = OddGridAdapter(), Grid()
    tracked.is_tracked = True
    register(adapter)
    try:
        assert (kind_of_place(Grid()), kind_of_place(tracked)) == (None, Leaf)
    finally:
        unregister(adapter)


def test_an_empty_container_has_none_although_another_of_its_type_has_one():
    assert (kind_of_place({"a": 1}), kind_of_place({})) == (TreeNode, None)


def test_a_tree_gets_no_more_members():
    assert is_final(Tree([1])) is True
