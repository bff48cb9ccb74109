"""Objects of milepost, assigned late to objects of TensorFlow and Keras, which are not told of them."""

import contextlib
import gc
import os
import warnings

import pytest

import milepost
from milepost import Checkpoint, MismatchError, UntrackableError
from tests.adapters.tensorflow.frameworks import keras, tf

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
keras_3 = pytest.importorskip("keras")


class Position(milepost.PythonState):
    def __init__(self, x):
        self.x = x

    def serialize(self):
        return str(self.x)

    def deserialize(self, string_value):
        self.x = int(string_value)


class Module(tf.Module):
    """A class with an ``__setattr__`` of its own."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)


holders = pytest.mark.parametrize("holder", [tf.Module, Module, keras.Model, keras_3.Model], ids=lambda kind: str(kind))


@pytest.fixture
def saved(tmp_path):
    made = tf.Module()
    made.p, made.v, made.w = Position(5), tf.Variable(6.0), milepost.Variable([7.0])
    return Checkpoint(m=made).write(tmp_path / "ckpt")


@holders
def test_a_state_has_its_value_as_soon_as_it_is_assigned(holder, saved, tmp_path):
    live = holder()
    checkpoint = Checkpoint(m=live)
    checkpoint.read(saved).expect_partial()
    live.p = Position(0)
    assert live.p.x == 5
    live.p.x = 99
    with warnings.catch_warnings():
        warnings.simplefilter("error", milepost.UnrestoredWarning)
        path = checkpoint.write(tmp_path / "again")
    assert live.p.x == 99
    assert milepost.load_variable(path, "m/p/.ATTRIBUTES/py_state") == b"99"


@holders
def test_a_variable_of_milepost_has_its_value_as_soon_as_it_is_assigned(holder, saved):
    live = holder()
    Checkpoint(m=live).read(saved).expect_partial()
    live.w = milepost.Variable([0.0])
    assert live.w.numpy() == [7]


@holders
def test_a_class_gets_its_own_method_back_when_nothing_waits(holder, saved):
    gc.collect()
    holder().other = 1  # what other tests left waiting is gone by now
    before = vars(holder).get("__setattr__")
    live = holder()
    Checkpoint(m=live).read(saved).expect_partial()
    live.p, live.w, live.v = Position(0), milepost.Variable([0.0]), tf.Variable(0.0)
    live.other = Position(1)
    del live
    gc.collect()
    holder().other = 1
    assert vars(holder).get("__setattr__") is before


@holders
def test_other_objects_of_the_class_are_left_alone(holder, saved):
    live, other = holder(), holder()
    Checkpoint(m=live).read(saved).expect_partial()
    other.p = Position(0)
    assert other.p.x == 0
    live.p = Position(0)
    assert live.p.x == 5


def test_an_object_that_does_not_fit_is_not_put_in_place(saved):
    live = tf.Module()
    Checkpoint(m=live).read(saved).expect_partial()
    with pytest.raises(MismatchError):
        live.w = milepost.Variable([0.0, 0.0])
    assert not hasattr(live, "w")
    live.w = milepost.Variable([0.0])
    assert live.w.numpy() == [7]


def append(holder, state):
    holder.states.append(state)


def extend(holder, state):
    holder.states.extend([state])


def add(holder, state):
    holder.states += [state]


def assign_a_list(holder, state):
    holder.others = [state]


def assign_a_tuple(holder, state):
    holder.others = (state,)


ways = pytest.mark.parametrize(
    "way", [append, extend, add, assign_a_list, assign_a_tuple], ids=lambda way: way.__name__
)


def with_list(holder):
    made = holder()
    made.states = []
    return made


@holders
@ways
def test_a_state_in_a_list_or_tuple_is_saved_and_has_its_value_at_once(holder, way, tmp_path):
    made = with_list(holder)
    way(made, Position(5))
    path = Checkpoint(m=made).write(tmp_path / "ckpt")
    live, late = with_list(holder), Position(0)
    status = Checkpoint(m=live).read(path)
    way(live, late)
    assert late.x == 5
    status.expect_partial()


@holders
def test_a_state_in_a_dict_is_saved_and_has_its_value_at_once(holder, tmp_path):
    made, live = holder(), holder()
    made.states, live.states = {}, {}
    made.states["a"] = Position(5)
    path = Checkpoint(m=made).write(tmp_path / "ckpt")
    status = Checkpoint(m=live).read(path)
    live.states["a"] = Position(0)
    assert live.states["a"].x == 5
    status.expect_partial()


@holders
def test_a_save_does_not_overwrite_a_state_that_was_inserted(holder, tmp_path):
    made = with_list(holder)
    append(made, Position(5))
    path = Checkpoint(m=made).write(tmp_path / "ckpt")
    live, late = with_list(holder), Position(0)
    checkpoint = Checkpoint(m=live)
    checkpoint.read(path)
    live.states.insert(0, late)
    late.x = 99
    with contextlib.suppress(UntrackableError):  # where it has its value only now
        checkpoint.write(tmp_path / "again")
    assert late.x == 99


def test_tensorflow_is_not_told_of_states_in_lists(tmp_path):
    made = with_list(tf.Module)
    append(made, Position(5))
    path = Checkpoint(m=made).write(str(tmp_path / "ckpt"))
    tf.train.Checkpoint(m=with_list(tf.Module)).read(path).assert_consumed()
