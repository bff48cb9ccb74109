"""Modules, optimizers, and copies of both."""

import copy
import functools
import pickle

import numpy as np

from milepost import Module, SlotOwner, Variable


def test_variables_are_found_nearest_first_and_once():
    root = Module()
    root.inner = Module()
    root.inner.deep = Variable(1)
    root.near = Variable(2)
    root.list = [root.near, Variable(3, trainable=False)]
    assert [int(v) for v in root.variables] == [2, 1, 3]
    assert [int(v) for v in root.trainable_variables] == [2, 1]


def test_a_slot_is_made_once_and_starts_as_zeros():
    optimizer, variable = SlotOwner(), Variable([1.0, np.nan])
    slot = optimizer.add_slot(variable, "m")
    assert optimizer.add_slot(variable, "m") is slot
    assert optimizer.get_slot(variable, "m") is slot
    assert optimizer.get_slot(variable, "v") is None
    assert slot.tolist() == [0, 0]
    assert not slot.trainable


def test_slots_follow_a_copied_model():
    root = Module()
    root.v, root.optimizer = Variable([1.0]), SlotOwner()
    root.optimizer.add_slot(root.v, "m", [5.0])
    for twin in (copy.deepcopy(root), pickle.loads(pickle.dumps(root))):
        slot = twin.optimizer.get_slot(twin.v, "m")
        assert slot.tolist() == [5]
        assert slot is not root.optimizer.get_slot(root.v, "m")


def test_a_property_with_a_setter_works():
    class Scaled(Module):
        @property
        def scale(self):
            return self._scale

        @scale.setter
        def scale(self, value):
            self._scale = value

    made = Scaled()
    made.scale = Variable(2.0)
    assert made.scale == 2


def test_a_cached_property_is_tracked_where_a_subclass_inherits_it():
    class Base:
        @functools.cached_property
        def v(self):
            return Variable(1.0)

    class Derived(Base, Module):
        pass

    module = Derived()
    assert [int(variable) for variable in (module.v, *module.variables)] == [1, 1]
