"""What the members of trees are."""

from collections import defaultdict
from enum import Enum
from functools import partial

import numpy as np
import pytest

from milepost.errors import UntrackableError
from milepost.graph.adapter import Adapter, register, unregister
from milepost.graph.omissions import Omission
from milepost.graph.trees.structure import holds_no_data, is_empty_tree, is_functional, is_tuple, members


class Empty:
    pass


class WithSlots:
    __slots__ = ("x",)


class OnLine:
    __slots__ = ("__dict__",)


def of_library(name, value=None, kind="Kind", bases=(), **members):
    """An object of a class in a library, with an attribute."""
    made = type(kind, bases, {"__module__": f"{name}.inner", **members})()
    made.value = value
    return made


@pytest.mark.parametrize(
    "leaf", [len, np.sin, float, partial(max, 1), np.dtype("int8"), Empty()], ids=lambda leaf: type(leaf).__name__
)
def test_functions_and_objects_without_attributes_hold_no_data(leaf):
    assert holds_no_data(leaf)


@pytest.mark.parametrize("leaf", [WithSlots(), OnLine(), "text", 1.5, object()], ids=lambda leaf: type(leaf).__name__)
def test_other_objects_may_hold_data(leaf):
    assert not holds_no_data(leaf)


def test_what_libraries_of_jax_call_functions_or_structure_holds_no_data():
    assert holds_no_data(of_library("optax", 1, __call__=lambda self: None))
    assert holds_no_data(of_library("jaxlib", 1, kind="PyTreeDef"))
    assert holds_no_data(Enum("Mode", ["A"], module="jax.modes").A)


def test_the_same_of_other_libraries_holds_data():
    assert not holds_no_data(of_library("optaxes", 1, __call__=lambda self: None))
    assert not holds_no_data(of_library("numpy", 1, kind="PyTreeDef"))
    assert not holds_no_data(of_library("jax", 1))


class GridAdapter(Adapter):
    functional = True

    def __init__(self, reason):
        self.reason = reason

    def handles(self, kind):
        return kind is WithSlots

    def tracks(self, obj):
        return False

    def omission(self, obj):
        return self.reason


@pytest.mark.parametrize(("reason", "is_empty"), [(None, True), (Omission("it is sparse"), False)], ids=["none", "one"])
def test_an_object_of_a_tree_is_empty_if_nothing_of_it_is_left_out(reason, is_empty):
    adapter = GridAdapter(reason)
    register(adapter)
    try:
        assert is_empty_tree(WithSlots()) == is_empty
        assert is_empty_tree([None, {}])
        assert not is_empty_tree([1])
        assert not is_empty_tree(defaultdict(list))
    finally:
        unregister(adapter)


class GridsAdapter(Adapter):
    functional = True

    def handles(self, kind):
        return kind is WithSlots


def test_a_container_is_functional_if_it_holds_what_never_changes_at_any_depth():
    adapter = GridsAdapter()
    register(adapter)
    try:
        assert is_functional([{"a": (1, WithSlots())}])
        assert is_functional(WithSlots())
        assert not is_functional([{"a": (1, Empty())}])
    finally:
        unregister(adapter)
    assert not is_functional([WithSlots()])


def test_the_methods_that_an_adapter_overrides_are_known_without_its_attributes():
    assert GridsAdapter.overrides == {"handles"}


def test_two_keys_of_a_dict_that_have_one_name_are_refused():
    assert [names for names, _, _ in members({1: "a", "2": "b"})] == [("1",), ("2",)]
    with pytest.raises(UntrackableError, match="the same name"):
        members({1: "a", "1": "b"})


def test_a_tuple_with_a_method_of_named_tuples_but_no_fields_is_no_named_tuple():
    assert is_tuple(type("Named", (tuple,), {"_fields": (), "_make": None}))
    assert not is_tuple(type("Half", (tuple,), {"_make": None}))
    assert not is_tuple(type("Half", (tuple,), {"_fields": ()}))


def test_an_adapter_leaves_nothing_to_tensorflow_by_default():
    assert Adapter.skipped_by_tensorflow(GridsAdapter(), None) == ()
