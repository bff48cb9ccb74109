"""Linen's variables and train states, and the bridges between Linen and NNX."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("flax.linen")
pytest.importorskip("flax.nnx")
import flax
import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx
from flax.training import train_state

import milepost
from tests.adapters.flax.models import INPUTS, TARGETS, keys


class Model(linen.Module):
    @linen.compact
    def __call__(self, x, train=False):
        x = linen.Dense(3)(x)
        x = linen.BatchNorm(use_running_average=not train)(x)
        return linen.Dense(3)(x)


class TrainState(train_state.TrainState):
    batch_stats: Any


TRANSFORMATION = optax.adam(0.1)
MODEL = Model()


def make(seed, freeze=lambda tree: tree):
    variables = MODEL.init(jax.random.key(seed), INPUTS)
    return TrainState.create(
        apply_fn=MODEL.apply,
        params=freeze(variables["params"]),
        tx=TRANSFORMATION,
        batch_stats=freeze(variables["batch_stats"]),
    )


@jax.jit
def step(state):
    def loss_of(params):
        variables = {"params": params, "batch_stats": state.batch_stats}
        outputs, updates = state.apply_fn(variables, INPUTS, train=True, mutable=["batch_stats"])
        return jnp.mean((outputs - TARGETS) ** 2), updates

    (loss, updates), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    return state.apply_gradients(grads=gradients, batch_stats=updates["batch_stats"]), loss


def assert_same(left, right):
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(one, other)


def test_training_with_a_train_state_goes_on_as_if_nothing_had_happened(path):
    state, _ = step(make(0))
    milepost.Checkpoint(state=state).write(path)
    checkpoint = milepost.Checkpoint(state=make(1))
    checkpoint.read(path).assert_consumed()
    assert_same(checkpoint.state, state)
    for _ in range(2):
        state, expected = step(state)
        checkpoint.state, loss = step(checkpoint.state)
        assert loss == expected
    assert_same(checkpoint.state, state)


def test_keys_of_a_train_state_are_those_of_the_parameters(path):
    milepost.Checkpoint(state=make(0)).write(path)
    found = keys(path)
    assert "state/params/Dense_0/kernel" in found
    assert "state/batch_stats/BatchNorm_0/mean" in found
    assert "state/opt_state/0/mu/Dense_1/bias" in found
    assert "state/step" in found


def test_a_restored_train_state_is_not_compiled_again(path):
    traces = []

    @jax.jit
    def traced(state):
        traces.append(1)
        return state.replace(step=state.step + 1)

    state = traced(make(0))
    checkpoint = milepost.Checkpoint(state=traced(state))
    before = len(traces)
    checkpoint.write(path)
    checkpoint.read(path).assert_consumed()
    checkpoint.state = traced(checkpoint.state)
    assert len(traces) == before
    assert int(checkpoint.state.step) == 3


def test_frozen_dicts_stay_frozen(path):
    saved = make(0, flax.core.freeze)
    milepost.Checkpoint(state=saved).write(path)
    checkpoint = milepost.Checkpoint(state=make(1, flax.core.freeze))
    checkpoint.read(path).assert_consumed()
    assert type(checkpoint.state.params) is flax.core.FrozenDict
    assert_same(checkpoint.state.params, saved.params)


def test_frozen_and_plain_dicts_restore_into_each_other(path):
    saved = make(0, flax.core.freeze)
    milepost.Checkpoint(state=saved).write(path)
    checkpoint = milepost.Checkpoint(state=make(1))
    checkpoint.read(path).assert_consumed()
    assert type(checkpoint.state.params) is dict
    assert_same(checkpoint.state.params, saved.params.unfreeze())


def test_variables_that_say_how_they_are_partitioned_are_restored(path):
    module = linen.Dense(3, kernel_init=linen.with_partitioning(linen.initializers.lecun_normal(), (None, "model")))
    saved, live = (module.init(jax.random.key(seed), INPUTS) for seed in (0, 1))
    milepost.Checkpoint(variables=saved).write(path)
    checkpoint = milepost.Checkpoint(variables=live)
    checkpoint.read(path).assert_consumed()
    restored = checkpoint.variables["params"]["kernel"]
    assert type(restored) is linen.Partitioned
    assert restored.names == (None, "model")
    assert_same(restored, saved["params"]["kernel"])


def test_variables_flattened_to_paths_are_restored(path):
    saved, live = (flax.traverse_util.flatten_dict(make(seed).params) for seed in (0, 1))
    milepost.Checkpoint(params=saved).write(path)
    checkpoint = milepost.Checkpoint(params=live)
    checkpoint.read(path).assert_consumed()
    assert "params/Dense_0.Skernel" in keys(path)
    assert_same(checkpoint.params, saved)


def test_a_linen_module_in_nnx_is_restored_when_it_was_initialised_before(path):
    def make(seed):
        return nnx.bridge.ToNNX(Model(), rngs=nnx.Rngs(seed)).lazy_init(INPUTS)

    saved, live = make(0), make(1)
    milepost.Checkpoint(net=saved).write(path)
    milepost.Checkpoint(net=live).read(path).assert_consumed()
    assert "net/Dense_0/kernel" in keys(path)
    assert jnp.array_equal(live(INPUTS), saved(INPUTS))


def test_a_linen_module_in_nnx_that_is_initialised_later_gets_its_values_when_the_status_is_asked(path):
    saved = nnx.bridge.ToNNX(Model(), rngs=nnx.Rngs(0)).lazy_init(INPUTS)
    milepost.Checkpoint(net=saved).write(path)
    live = nnx.bridge.ToNNX(Model(), rngs=nnx.Rngs(1))
    status = milepost.Checkpoint(net=live).read(path)
    live.lazy_init(INPUTS)
    status.assert_consumed()
    assert jnp.array_equal(live(INPUTS), saved(INPUTS))


def test_an_nnx_module_in_linen_restores_the_variables_that_it_made(path):
    module = nnx.bridge.ToLinen(nnx.Linear, args=(3, 3))
    saved, live = (module.init(jax.random.key(seed), INPUTS) for seed in (0, 1))
    milepost.Checkpoint(variables=saved).write(path)
    checkpoint = milepost.Checkpoint(variables=live)
    checkpoint.read(path).assert_consumed()
    assert jnp.array_equal(module.apply(checkpoint.variables, INPUTS), module.apply(saved, INPUTS))


def test_a_module_in_linens_style_that_makes_its_parts_in_the_call_is_restored(path):
    class Net(nnx.bridge.Module):
        @nnx.bridge.compact
        def __call__(self, x):
            return nnx.Linear(3, 3, rngs=self.make_rngs())(x)

        def make_rngs(self):
            return nnx.Rngs(self.make_rng("params"))

    saved, live = Net(), Net()
    variables = [net.init(seed, INPUTS) for seed, net in enumerate((saved, live))]
    milepost.Checkpoint(variables=variables[0]).write(path)
    checkpoint = milepost.Checkpoint(variables=variables[1])
    checkpoint.read(path).assert_consumed()
    assert_same(checkpoint.variables, variables[0])
