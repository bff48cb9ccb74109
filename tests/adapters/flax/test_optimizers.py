"""`nnx.Optimizer`: its step and what Optax keeps, under the paths of the parameters."""

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("flax.nnx")
pytest.importorskip("optax")
import jax
import jax.numpy as jnp
import optax
from flax import nnx

import milepost
from tests.adapters.flax.models import INPUTS, TARGETS, Stack, keys, train_step, trainer

SCHEDULE = optax.cosine_decay_schedule(0.1, 10)
MANY = {
    "adamw with a schedule": lambda: optax.adamw(SCHEDULE),
    "momentum": lambda: optax.sgd(0.1, momentum=0.9),
    "adafactor": lambda: optax.adafactor(0.1, min_dim_size_to_factor=2),
    "hyperparameters as state": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=SCHEDULE),
    "every other step": lambda: optax.MultiSteps(optax.adam(0.1), 2),
    "two parts": lambda: optax.partition(
        {"slow": optax.sgd(0.01, momentum=0.5), "fast": optax.adam(0.1)},
        lambda params: jax.tree_util.tree_map_with_path(
            lambda path, _: "fast" if "l1" in jax.tree_util.keystr(path) else "slow", params
        ),
    ),
}


def state_of(checkpoint):
    state = nnx.state((checkpoint.net, checkpoint.optimizer), nnx.Not(nnx.RngKey))
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def assert_same(left, right):
    for one, other in zip(state_of(left), state_of(right), strict=True):
        np.testing.assert_array_equal(one, other)


def test_keys_are_those_of_the_parameters(path):
    trainer(0).write(path)
    found = [key for key in keys(path) if key.startswith("optimizer/")]
    moments = [
        f"optimizer/opt_state/0/{moment}/{name}"
        for moment in ("mu", "nu")
        for name in ("l1/bias", "l1/kernel", "l2/bias", "l2/kernel", "norm/bias", "norm/scale")
    ]
    assert found == ["optimizer/opt_state/0/count", *moments, "optimizer/step"]


@pytest.mark.parametrize("name", MANY)
def test_training_goes_on_as_if_nothing_had_happened(path, name):
    transformation = MANY[name]()
    saved, fresh = trainer(0, transformation), trainer(1, transformation)
    for _ in range(3):
        train_step(saved.net, saved.optimizer)
    saved.write(path)
    train_step(fresh.net, fresh.optimizer)
    fresh.read(path).assert_consumed()
    assert_same(saved, fresh)
    assert int(fresh.optimizer.step[...]) == 3
    for _ in range(2):
        assert train_step(saved.net, saved.optimizer) == train_step(fresh.net, fresh.optimizer)
    assert_same(saved, fresh)


def test_parameters_in_lists_are_found_in_the_state_of_the_optimizer(path):
    saved, fresh = (nnx.Optimizer(Stack(2, nnx.Rngs(seed)), optax.adam(0.1), wrt=nnx.Param) for seed in (0, 1))
    saved.opt_state[0].mu["layers"][1]["kernel"][...] += 1
    milepost.Checkpoint(optimizer=saved).write(path)
    assert "optimizer/opt_state/0/mu/layers/1/kernel" in keys(path)
    milepost.Checkpoint(optimizer=fresh).read(path).assert_consumed()
    np.testing.assert_array_equal(fresh.opt_state[0].mu["layers"][1]["kernel"], np.ones((3, 3)))


def test_an_optimizer_of_adapters_alone_keeps_state_of_them_alone(path):
    def make(seed):
        net = nnx.Dict(base=nnx.Linear(3, 3, rngs=nnx.Rngs(seed)), lora=nnx.LoRA(3, 3, 3, rngs=nnx.Rngs(seed)))
        return milepost.Checkpoint(net=net, optimizer=nnx.Optimizer(net, optax.adam(0.1), wrt=nnx.LoRAParam))

    make(0).write(path)
    make(1).read(path).assert_consumed()
    assert [key for key in keys(path) if "/mu/" in key] == [
        "optimizer/opt_state/0/mu/lora/lora_a",
        "optimizer/opt_state/0/mu/lora/lora_b",
    ]


def test_an_optimizer_that_holds_its_model_restores_both(path):
    def make(seed):
        net = nnx.Linear(3, 3, rngs=nnx.Rngs(seed))
        return nnx.ModelAndOptimizer(net, optax.adam(0.1))

    saved, fresh = make(0), make(1)
    milepost.Checkpoint(optimizer=saved).write(path)
    milepost.Checkpoint(optimizer=fresh).read(path).assert_consumed()
    assert "optimizer/model/kernel" in keys(path)
    np.testing.assert_array_equal(fresh.model.kernel, saved.model.kernel)


def test_averaged_parameters_are_restored(path):
    saved, fresh = (nnx.EMA(nnx.Linear(3, 3, rngs=nnx.Rngs(seed)), decay=0.5) for seed in (0, 1))
    milepost.Checkpoint(average=saved).write(path)
    milepost.Checkpoint(average=fresh).read(path).assert_consumed()
    for one, other in zip(*(jax.tree.leaves(nnx.state(each)) for each in (saved, fresh)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_alone_are_restored_from_what_a_trainer_saved(path):
    saved, fresh = trainer(0), trainer(1)
    saved.write(path)
    status = milepost.Checkpoint(net=fresh.net).read(path).expect_partial()
    status.assert_existing_objects_matched()
    assert all(entry.key.startswith("optimizer/") for entry in status.report().unexpected)
    fresh.net.eval()
    saved.net.eval()
    assert jnp.array_equal(fresh.net(INPUTS), saved.net(INPUTS))
    assert not jnp.array_equal(saved.net(INPUTS), TARGETS)


def test_another_optimizer_takes_what_it_knows_and_the_rest_is_reported(path):
    net = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    milepost.Checkpoint(optimizer=nnx.Optimizer(net, optax.adam(0.1), wrt=nnx.Param)).write(path)
    live = nnx.Optimizer(net, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)
    report = milepost.Checkpoint(optimizer=live).read(path).expect_partial().report()

    def names(entries):
        return [entry.key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE") for entry in entries]

    assert names(report.matched) == ["optimizer/step"]
    assert names(report.missing) == [f"optimizer/opt_state/0/trace/{name}" for name in ("bias", "kernel")]
    moments = [f"optimizer/opt_state/0/{moment}/{name}" for moment in ("mu", "nu") for name in ("bias", "kernel")]
    assert names(report.deferred) == ["optimizer/opt_state/0/count", *moments]
    assert not report.unexpected


@pytest.mark.filterwarnings("error")
def test_state_of_parameters_that_were_unfrozen_after_the_save_is_named_once_they_are_trained(path):
    net = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    biases = nnx.All(nnx.Param, nnx.PathContains("bias"))
    checkpoint = milepost.Checkpoint(net=net, optimizer=nnx.Optimizer(net, optax.adam(0.1), wrt=biases))
    checkpoint.write(path)
    checkpoint.optimizer = nnx.Optimizer(net, optax.adam(0.1), wrt=nnx.Param)
    checkpoint.read(path).expect_partial()  # the new moments are zeros
    checkpoint.optimizer.update(net, jax.tree.map(jnp.ones_like, nnx.state(net, nnx.Param)))
    with pytest.warns(milepost.UnrestoredWarning, match="2 values of an optimizer were made after") as caught:
        checkpoint.read(path).expect_partial()
    assert "optimizer/opt_state/0/mu/kernel" in str(caught[0].message)


def test_a_train_state_of_a_split_module_is_restored(path):
    transformation = optax.adam(0.1)

    def make(seed):
        graphdef, params = nnx.split(nnx.Linear(3, 3, rngs=nnx.Rngs(seed)))
        return nnx.TrainState.create(graphdef, params=nnx.as_pure(params), tx=transformation)

    saved = make(0)
    milepost.Checkpoint(state=saved).write(path)
    checkpoint = milepost.Checkpoint(state=make(1))
    checkpoint.read(path).assert_consumed()
    assert "state/params/kernel" in keys(path)
    for one, other in zip(jax.tree.leaves(checkpoint.state), jax.tree.leaves(saved), strict=True):
        np.testing.assert_array_equal(one, other)
