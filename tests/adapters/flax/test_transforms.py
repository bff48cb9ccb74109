"""What NNX does with objects before and after a restore: tracing, splitting, copying, donating."""

import copy
import pickle

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("flax.nnx")
import jax
import jax.numpy as jnp
import optax
from flax import nnx

import milepost
from tests.adapters.flax.models import INPUTS, TARGETS, Net, train_step, trainer


def linear(seed=0):
    return nnx.Linear(3, 3, rngs=nnx.Rngs(seed))


def waiting(path):
    """A module on which values wait for a child ``late``, and what the child was saved with."""
    saved = nnx.Dict(here=linear(0), late=linear(1))
    milepost.Checkpoint(net=saved).write(path)
    net = nnx.Dict(here=linear(2))
    status = milepost.Checkpoint(net=net).read(path)
    return net, saved["late"], status


def test_a_restore_does_not_compile_again(path):
    traces = []

    @nnx.jit
    def step(net, optimizer):
        traces.append(1)

        def loss_of(net):
            return jnp.mean((net(INPUTS) - TARGETS) ** 2)

        optimizer.update(net, nnx.grad(loss_of)(net))

    checkpoint = trainer(0, optax.adam(0.1))
    step(checkpoint.net, checkpoint.optimizer)
    step(checkpoint.net, checkpoint.optimizer)
    before = len(traces)
    checkpoint.write(path)
    checkpoint.read(path).assert_consumed()
    step(checkpoint.net, checkpoint.optimizer)
    assert len(traces) == before


def test_a_model_restored_before_its_first_step_is_compiled_once(path):
    traces = []

    @nnx.jit
    def step(net):
        traces.append(1)
        return net(INPUTS)

    milepost.Checkpoint(net=Net(nnx.Rngs(0))).write(path)
    net = Net(nnx.Rngs(1))
    milepost.Checkpoint(net=net).read(path).assert_consumed()
    for _ in range(3):
        step(net)
    assert len(traces) == 1


def test_variables_stay_the_same_objects(path):
    checkpoint = trainer(0)
    checkpoint.write(path)
    before = [*map(id, nnx.to_flat_state(nnx.state((checkpoint.net, checkpoint.optimizer))).leaves)]
    checkpoint.read(path)
    assert [*map(id, nnx.to_flat_state(nnx.state((checkpoint.net, checkpoint.optimizer))).leaves)] == before


def test_arrays_taken_before_a_restore_keep_their_values(path):
    net = linear(0)
    milepost.Checkpoint(net=linear(1)).write(path)
    before = net.kernel.get_value()
    copied = np.array(before)
    milepost.Checkpoint(net=net).read(path)
    np.testing.assert_array_equal(before, copied)


@pytest.mark.parametrize(
    "again",
    [
        lambda net: nnx.merge(*nnx.split(net)),
        nnx.clone,
        copy.deepcopy,
        lambda net: pickle.loads(pickle.dumps(net)),
        lambda net: jax.tree.map(lambda leaf: leaf, net),
    ],
    ids=["merge", "clone", "deepcopy", "pickle", "tree_map"],
)
def test_an_object_on_which_values_wait_is_copied_as_ever(path, again):
    net, _, status = waiting(path)
    other = again(net)
    assert sorted(other) == ["here"]
    np.testing.assert_array_equal(other["here"].kernel, net["here"].kernel)
    other["late"] = linear(3)
    expected = np.array(other["late"].kernel)
    status.report()
    np.testing.assert_array_equal(other["late"].kernel, expected)


def test_an_object_on_which_values_wait_is_traced_as_ever(path):
    net, _, status = waiting(path)
    assert nnx.jit(lambda net: net["here"](INPUTS))(net).shape == (4, 3)
    assert status.report().deferred


def test_a_restored_model_can_be_split_and_merged(path):
    saved, fresh = Net(nnx.Rngs(0)), Net(nnx.Rngs(1))
    milepost.Checkpoint(net=saved).write(path)
    milepost.Checkpoint(net=fresh).read(path)
    merged = nnx.merge(*nnx.split(fresh))
    np.testing.assert_array_equal(merged.l1.kernel, saved.l1.kernel)


def test_saving_inside_a_trace_is_refused(path):
    @nnx.jit
    def step(net):
        milepost.Checkpoint(net=net).write(path)

    with pytest.raises(milepost.UntrackableError, match=r"(?s)being traced.*key: net/.*outside of jit"):
        step(linear())
    assert not list(path.parent.iterdir())


def test_restoring_inside_a_trace_is_refused_and_changes_nothing(path):
    milepost.Checkpoint(net=linear(0)).write(path)
    net = linear(1)
    before = np.array(net.kernel)

    @jax.jit
    def step(x):
        milepost.Checkpoint(net=net).read(path)
        return x

    with pytest.raises(milepost.UntrackableError, match="being traced"):
        step(1.0)
    np.testing.assert_array_equal(net.kernel, before)


def test_a_tracer_that_leaked_is_refused(path):
    net = linear()

    @jax.jit
    def leak(x):
        object.__setattr__(net.kernel, "_raw_value", x)
        return x

    leak(jnp.ones((3, 3)))
    with pytest.raises(milepost.UntrackableError, match=r"(?s)being traced.*key: net/kernel"):
        milepost.Checkpoint(net=net).write(path)


def test_a_donated_array_is_refused_by_name(path):
    net = linear()
    jax.jit(lambda x: x + 1, donate_argnums=0)(net.kernel.get_value())
    with pytest.raises(milepost.MilepostError, match=r"(?s)deleted.*key: net/kernel"):
        milepost.Checkpoint(net=net).write(path)


def test_a_donated_array_can_be_restored(path):
    saved, net = linear(0), linear(1)
    milepost.Checkpoint(net=saved).write(path)
    jax.jit(lambda x: x + 1, donate_argnums=0)(net.kernel.get_value())
    milepost.Checkpoint(net=net).read(path).assert_consumed()
    np.testing.assert_array_equal(net.kernel, saved.kernel)


def test_a_step_that_donates_its_state_can_be_saved_and_restored(path):
    checkpoint, fresh = trainer(0), trainer(1)
    step = nnx.jit(lambda net, optimizer: train_step(net, optimizer), donate_argnums=(0, 1))
    step(checkpoint.net, checkpoint.optimizer)
    checkpoint.write(path)
    saved = np.array(checkpoint.net.l1.kernel)
    step(checkpoint.net, checkpoint.optimizer)
    fresh.read(path).assert_consumed()
    np.testing.assert_array_equal(fresh.net.l1.kernel, saved)
    step(fresh.net, fresh.optimizer)
    np.testing.assert_array_equal(fresh.net.l1.kernel, checkpoint.net.l1.kernel)
