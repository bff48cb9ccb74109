"""What the members of trees are."""

from enum import Enum
from functools import partial

import numpy as np
import pytest

from milepost.graph.trees.structure import holds_no_data


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


@pytest.mark.parametrize("leaf", [len, np.sin, float, partial(max, 1), np.dtype("int8"), Empty()], ids=repr)
def test_functions_and_objects_without_attributes_hold_no_data(leaf):
    assert holds_no_data(leaf)


@pytest.mark.parametrize("leaf", [WithSlots(), OnLine(), "text", 1.5, object()], ids=repr)
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
