"""A save writes deferred values again."""

import os
import pathlib

import numpy as np
import pytest
from hypothesis import given

import milepost
from milepost import Checkpoint, CheckpointOptions, CorruptCheckpointError, Module, SlotOwner, Variable
from milepost.storage import MemoryStorage
from tests.checkpoint.test_deferred_graphs import Grower, roots, saved, values
from tests.objects import module


def trained():
    net, optimizer = module(w=Variable([1.0, 2.0])), SlotOwner()
    optimizer.add_slot(net.w, "m", [3.0, 4.0])
    return Checkpoint(net=net, optimizer=optimizer)


def keys(path):
    return [key for key, _ in milepost.list_variables(path) if not key.startswith("_")]


@given(roots)
def test_saved_right_after_a_restore_into_nothing_everything_is_still_there(recipe):
    options = CheckpointOptions(storage=MemoryStorage())
    source, target = Grower(blank=False), Grower(blank=True)
    path = saved(source, recipe, options)
    live = Checkpoint()
    live.read(path, options)
    again = live.write("again", options)
    end = target.grow(Checkpoint(), recipe)
    end.read(again, options).assert_consumed()
    assert values(target) == values(source)
    assert milepost.CheckpointReader(again, options).get_variable_to_shape_map() == (
        milepost.CheckpointReader(path, options).get_variable_to_shape_map()
    )


def test_keys_stay_what_they_would_be_with_objects(prefix):
    path = trained().write(prefix)
    for live in (
        Checkpoint(),
        Checkpoint(net=Module()),
        Checkpoint(optimizer=SlotOwner()),
        Checkpoint(net=Module(), optimizer=SlotOwner()),
        Checkpoint(net=module(w=Variable([0.0, 0.0]))),
    ):
        live.read(path)
        assert keys(live.write(prefix + "-again")) == keys(path)


def test_slots_of_a_layer_that_was_never_called_are_carried_over(prefix):
    path = trained().write(prefix)
    live = Checkpoint(net=Module(), optimizer=SlotOwner())
    live.read(path)
    path = live.write(prefix + "-again")
    live = Checkpoint(net=Module(), optimizer=SlotOwner())
    status = live.read(path)
    live.net.w = Variable([0.0, 0.0])
    assert live.optimizer.get_slot(live.net.w, "m").tolist() == [3, 4]
    status.assert_consumed()


def test_two_restores_and_saves_in_a_row_lose_nothing(prefix):
    path = trained().write(prefix)
    for number in range(3):
        live = Checkpoint(net=Module(), optimizer=SlotOwner())
        live.read(path)
        path = live.write(f"{prefix}-{number}")
    end = trained()
    end.net.w.assign([0.0, 0.0])
    end.read(path).assert_consumed()
    assert end.net.w.tolist() == [1, 2]


def test_what_a_partial_restore_leaves_over_is_not_taken_along(prefix):
    path = trained().write(prefix)
    live = Checkpoint(net=Module())
    live.read(path).expect_partial()
    assert keys(live.write(prefix + "-again")) == []


def test_the_newest_waiting_value_is_taken_along(prefix):
    live = Checkpoint()
    for number in (1.0, 2.0):
        live.read(Checkpoint(v=Variable(number)).write(f"{prefix}-{number}"))
    assert milepost.load_variable(live.write(prefix), "v/.ATTRIBUTES/VARIABLE_VALUE") == 2


def test_a_live_object_comes_before_what_waited_for_it(prefix):
    path = Checkpoint(v=Variable(1.0)).write(prefix)
    live = Checkpoint()
    live.read(path)
    live.v = Variable(0.0)
    live.v.assign(5.0)
    assert milepost.load_variable(live.write(prefix + "-again"), "v/.ATTRIBUTES/VARIABLE_VALUE") == 5


def test_a_shared_object_that_waits_in_two_places_stays_shared(prefix):
    shared = Variable(1.0)
    path = Checkpoint(a=module(v=shared), b=module(v=shared)).write(prefix)
    live = Checkpoint(a=Module(), b=Module())
    live.read(path)
    graph = milepost.CheckpointView(live.write(prefix + "-again")).graph
    assert graph.nodes[1].children == graph.nodes[2].children


def test_a_cycle_that_waits_is_carried_over(prefix):
    root = module(v=Variable(1.0))
    root.me = root
    root.child = module(parent=root)
    path = Checkpoint(m=root).write(prefix)
    live = Checkpoint()
    live.read(path)
    again = live.write(prefix + "-again")
    assert keys(again) == keys(path)


def test_damage_to_a_waiting_value_fails_the_save_and_leaves_the_old(prefix):
    path = Checkpoint(v=Variable(np.arange(100.0))).write(prefix)
    data = pathlib.Path(path + ".data-00000-of-00001")
    damaged = bytearray(data.read_bytes())
    damaged[5] ^= 1
    data.write_bytes(damaged)
    live = Checkpoint()
    live.read(path).report()
    with pytest.raises(CorruptCheckpointError):
        live.write(prefix + "-again")
    assert not os.path.exists(prefix + "-again.index")


def test_tensorflow_restores_what_was_carried_over(prefix):
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    path = Checkpoint(m=module(l=[Variable([1.0]), {"k": Variable("text")}])).write(prefix)
    live = Checkpoint()
    live.read(path)
    theirs = tf.Module()
    theirs.l = [tf.Variable([0.0]), {"k": tf.Variable("")}]
    tf.train.Checkpoint(m=theirs).read(live.write(prefix + "-again")).assert_consumed()
    assert theirs.l[1]["k"].numpy() == b"text"


def test_opaque_values_of_tensorflow_are_carried_over(prefix):
    """An iterator's state means nothing outside TensorFlow, and comes back to it as it was."""
    tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    iterator = iter(tf.data.Dataset.range(10))
    next(iterator), next(iterator)
    path = tf.train.Checkpoint(it=iterator, step=tf.Variable(2)).write(prefix)
    live = Checkpoint(step=Variable(0))
    live.read(path)
    fresh = iter(tf.data.Dataset.range(10))
    tf.train.Checkpoint(it=fresh, step=tf.Variable(0)).read(live.write(prefix + "-again")).assert_consumed()
    assert next(fresh).numpy() == 2
