"""Values that arrive when a tree does, and what is known of places between steps."""

import gc
import weakref

import numpy as np
import pytest

import milepost
from milepost.engine.report import Outcome

jax = pytest.importorskip("jax")
jnp = jax.numpy


def layers(count, value):
    return {f"layer_{i}": {"kernel": jnp.full((2, 2), value), "bias": jnp.full(2, value)} for i in range(count)}


def net(params):
    module = milepost.Module()
    module.params = params
    return module


def outcomes(status, outcome):
    return [entry.key.partition("/.ATT")[0] for entry in status.report().entries if entry.outcome is outcome]


def test_a_tree_that_is_assigned_after_the_restore_has_its_values(path):
    milepost.Checkpoint(params=layers(2, 1.0), step=jnp.int32(3)).write(path)
    checkpoint = milepost.Checkpoint()
    status = checkpoint.read(path)
    initial = layers(2, 0.0)
    checkpoint.params = initial
    assert checkpoint.params["layer_1"]["kernel"].tolist() == [[1, 1], [1, 1]]
    assert initial["layer_1"]["kernel"].tolist() == [[0, 0], [0, 0]]
    assert outcomes(status, Outcome.DEFERRED) == ["step"]
    checkpoint.step = jnp.int32(0)
    assert int(checkpoint.step) == 3
    status.assert_consumed()


def test_a_larger_tree_that_a_module_is_given_gets_what_is_left(path):
    milepost.Checkpoint(net=net(layers(3, 1.0))).write(path)
    live = net(layers(2, 0.0))
    status = milepost.Checkpoint(net=live).read(path)
    assert outcomes(status, Outcome.DEFERRED) == ["net/params/layer_2/bias", "net/params/layer_2/kernel"]
    trained = jax.tree.map(lambda x: x + 1, live.params)
    live.params = {**trained, "layer_2": layers(3, 0.0)["layer_2"]}
    assert live.params["layer_1"]["bias"].tolist() == [2, 2]
    assert live.params["layer_2"]["bias"].tolist() == [1, 1]
    status.assert_consumed()


def test_a_value_arrives_once(path):
    milepost.Checkpoint(params=layers(2, 1.0)).write(path)
    checkpoint = milepost.Checkpoint()
    checkpoint.read(path)
    checkpoint.params = layers(2, 0.0)
    checkpoint.params = layers(2, 5.0)
    assert checkpoint.params["layer_0"]["bias"].tolist() == [5, 5]


def test_a_tree_that_does_not_fit_is_not_assigned(path):
    milepost.Checkpoint(params={"w": jnp.ones(3)}).write(path)
    checkpoint = milepost.Checkpoint()
    checkpoint.read(path)
    with pytest.raises(milepost.MismatchError, match="params/w"):
        checkpoint.params = {"w": jnp.zeros(4)}
    assert not hasattr(checkpoint, "params")
    checkpoint.params = {"w": jnp.zeros(3)}
    assert checkpoint.params["w"].tolist() == [1, 1, 1]


def test_a_member_that_is_put_into_a_plain_dict_has_its_value_as_soon_as_somebody_asks(path):
    milepost.Checkpoint(params=layers(2, 1.0)).write(path)
    checkpoint = milepost.Checkpoint(params=layers(1, 0.0))
    status = checkpoint.read(path)
    checkpoint.params["layer_1"] = layers(2, 0.0)["layer_1"]
    status.assert_consumed()
    assert checkpoint.params["layer_1"]["bias"].tolist() == [1, 1]
    again = checkpoint.write(path + "-again")
    np.testing.assert_array_equal(milepost.load_variable(again, "params/layer_1/bias/.ATTRIBUTES/VARIABLE_VALUE"), 1)


def test_a_save_takes_along_what_the_tree_lacks(path):
    milepost.Checkpoint(params=layers(3, 1.0)).write(path)
    checkpoint = milepost.Checkpoint(params=layers(1, 0.0))
    checkpoint.read(path)
    again = checkpoint.write(path + "-again")
    fresh = milepost.Checkpoint(params=layers(3, 0.0))
    fresh.read(again).assert_consumed()
    assert fresh.params["layer_2"]["bias"].tolist() == [1, 1]


def test_a_dict_that_is_filled_later_gets_its_values(path):
    milepost.Checkpoint(params=layers(2, 1.0)).write(path)
    checkpoint = milepost.Checkpoint(params={})
    status = checkpoint.read(path)
    for name, layer in layers(2, 0.0).items():
        checkpoint.params[name] = layer
    assert checkpoint.params["layer_1"]["bias"].tolist() == [1, 1]
    status.assert_consumed()


def test_the_newest_restore_wins_in_a_late_tree(path):
    milepost.Checkpoint(params=layers(1, 1.0)).write(path)
    milepost.Checkpoint(params=layers(1, 2.0)).write(path + "-2")
    checkpoint = milepost.Checkpoint()
    checkpoint.read(path).expect_partial()
    checkpoint.read(path + "-2")
    checkpoint.params = layers(1, 0.0)
    assert checkpoint.params["layer_0"]["bias"].tolist() == [2, 2]


def test_assertions_hold_after_training_went_on(path):
    milepost.Checkpoint(params=layers(1, 1.0)).write(path)
    checkpoint = milepost.Checkpoint(params=layers(1, 0.0))
    status = checkpoint.read(path)
    for _ in range(2):
        checkpoint.params = jax.tree.map(lambda x: x * 2, checkpoint.params)
        status.assert_consumed().assert_existing_objects_matched()
    assert checkpoint.params["layer_0"]["bias"].tolist() == [4, 4]


def test_no_old_arrays_are_kept_in_memory(path):
    checkpoint = milepost.Checkpoint(params=layers(1, 1.0))
    checkpoint.write(path)
    status = checkpoint.read(path)
    status.report()
    saved = weakref.ref(checkpoint.params["layer_0"]["bias"])
    checkpoint.params = layers(1, 2.0)
    gc.collect()
    assert saved() is None


def test_a_module_of_arrays_and_trees_is_restored(path):
    class Model(milepost.Module):
        def __init__(self, value):
            self.params = (jnp.full(2, value), [jnp.full(3, value)])
            self.scale = jnp.float32(value)

    milepost.Checkpoint(model=Model(1.0)).write(path)
    model = Model(0.0)
    milepost.Checkpoint(model=model).read(path).assert_consumed()
    assert (float(model.scale), model.params[1][0].tolist()) == (1.0, [1, 1, 1])


def test_a_file_of_variables_fills_a_tree(path):
    milepost.Checkpoint(params=milepost.Checkpoint(w=milepost.Variable([1.0, 2.0]))).write(path)
    checkpoint = milepost.Checkpoint(params={"w": jnp.zeros(2)})
    checkpoint.read(path).assert_consumed()
    assert checkpoint.params["w"].tolist() == [1, 2]
