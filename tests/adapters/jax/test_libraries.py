"""Nodes of other libraries' classes: Flax's structs and train states, Equinox's modules."""

import subprocess
import sys

import pytest

import milepost

pytest.importorskip("jax")
pytest.importorskip("optax")
import jax
import jax.numpy as jnp
import optax

from tests.adapters.jax.restoring import restored


def keys(path):
    return [name.partition("/.ATTRIBUTES")[0] for name, _ in milepost.list_variables(path)[1:]]


@pytest.mark.parametrize("within", [lambda node: node, lambda node: {"node": node}, lambda node: [node]])
def test_a_node_without_data_is_no_obstacle_in_a_checkpoint(path, within):
    """Such as the half of a module that `equinox.partition` gives beside its arrays."""
    milepost.Checkpoint(w=jnp.ones(2), settings=within(jax.tree_util.Partial(max))).write(path)
    live = within(jax.tree_util.Partial(min))
    assert restored(path, w=jnp.zeros(2), settings=live).w.tolist() == [1, 1]
    assert keys(path) == ["w"]


class TestFlax:
    @pytest.fixture
    def make(self):
        train_state = pytest.importorskip("flax.training.train_state")

        def state(value):
            params = {"dense": {"kernel": jnp.full((2, 3), value, "float32"), "bias": jnp.full(3, value, "float32")}}
            return train_state.TrainState.create(apply_fn=max, params=params, tx=optax.adam(0.1))

        return state

    def test_a_train_state_round_trips_with_its_functions_left_alone(self, path, make):
        state = make(1.0)
        state = state.apply_gradients(grads=state.params)
        milepost.Checkpoint(state=state).write(path)
        fresh = make(0.0)
        got = restored(path, state=fresh).state
        assert (type(got), got.step, got.apply_fn, got.tx) == (type(state), 1, max, fresh.tx)
        assert jnp.array_equal(got.opt_state[0].mu["dense"]["kernel"], state.opt_state[0].mu["dense"]["kernel"])

    def test_its_keys_are_those_that_one_would_guess(self, path, make):
        milepost.Checkpoint(state=make(1.0)).write(path)
        assert keys(path) == [
            "state/opt_state/0/count",
            *(f"state/opt_state/0/{slot}/dense/{name}" for slot in ("mu", "nu") for name in ("bias", "kernel")),
            "state/params/dense/bias",
            "state/params/dense/kernel",
            "state/step",
        ]

    @pytest.mark.parametrize("compiled_before", [False, True])
    def test_a_step_counter_may_be_pythons_or_an_array_on_either_side(self, path, make, compiled_before):
        update = jax.jit(lambda state: state.apply_gradients(grads=state.params))
        compiled, plain = update(make(1.0)), make(1.0).apply_gradients(grads=make(1.0).params)
        saved, live = (compiled, plain) if compiled_before else (plain, compiled)
        milepost.Checkpoint(state=saved).write(path)
        got = restored(path, state=live.replace(step=live.step * 0)).state
        assert int(got.step) == 1
        assert type(got.step) is type(live.step)

    def test_a_train_state_is_not_compiled_again_after_a_restore(self, path, make):
        traces = []

        @jax.jit
        def update(state):
            traces.append(1)
            return state.apply_gradients(grads=state.params)

        first = make(1.0)
        state = update(update(first))
        milepost.Checkpoint(state=state).write(path)
        before = len(traces)
        update(restored(path, state=state).state)
        assert len(traces) == before

    def test_frozen_dicts_and_structs_round_trip(self, path):
        flax = pytest.importorskip("flax")

        @flax.struct.dataclass
        class Averages:
            params: object
            decay: float = flax.struct.field(pytree_node=False)

        def make(value):
            return Averages(flax.core.freeze({"w": {"a": jnp.full(2, value)}}), 0.5 + value)

        milepost.Checkpoint(averages=make(1.0)).write(path)
        assert keys(path) == ["averages/params/w/a"]
        got = restored(path, averages=make(0.0)).averages
        assert (got.params["w"]["a"].tolist(), got.decay) == ([1, 1], 0.5)


class TestEquinox:
    @pytest.fixture
    def eqx(self):
        return pytest.importorskip("equinox")

    def test_a_module_round_trips_with_its_activation_left_alone(self, path, eqx):
        def make(seed):
            return eqx.nn.MLP(2, 2, 4, 1, activation=jax.nn.relu, key=jax.random.key(seed))

        model = make(1)
        milepost.Checkpoint(model=model).write(path)
        assert keys(path) == [f"model/layers/{i}/{name}" for i in (0, 1) for name in ("bias", "weight")]
        got = restored(path, model=make(2)).model
        assert eqx.tree_equal(got, model)
        assert jnp.array_equal(got(jnp.ones(2)), model(jnp.ones(2)))

    def test_a_module_made_without_memory_is_filled(self, path, eqx):
        model = eqx.nn.Linear(2, 3, key=jax.random.key(1))
        milepost.Checkpoint(model=model).write(path)
        skeleton = eqx.filter_eval_shape(eqx.nn.Linear, 2, 3, key=jax.random.key(0))
        assert eqx.tree_equal(restored(path, model=skeleton).model, model)

    def test_the_state_of_stateful_layers_round_trips(self, path, eqx):
        def make(steps):
            layer, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, "batch", mode="ema")
            for _ in range(steps):
                x = jnp.arange(6.0).reshape(2, 3)
                _, state = jax.vmap(layer, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)
            return layer, state

        layer, state = make(2)
        milepost.Checkpoint(layer=layer, state=state).write(path)
        fresh_layer, fresh_state = make(0)
        got = restored(path, layer=fresh_layer, state=fresh_state)
        assert eqx.tree_equal(got.state, state)
        assert eqx.tree_equal(got.layer, layer)

    def test_one_array_in_two_places_of_a_module_is_restored_in_both(self, path, eqx):
        class Tied(eqx.Module):
            embed: jax.Array
            unembed: jax.Array

        shared = jnp.ones(3)
        milepost.Checkpoint(model=Tied(shared, shared)).write(path)
        got = restored(path, model=Tied(jnp.zeros(3), jnp.zeros(3))).model
        assert (got.embed.tolist(), got.unembed.tolist()) == ([1, 1, 1], [1, 1, 1])

    def test_shared_nodes_round_trip(self, path, eqx):
        def make(seed):
            one, two = jax.random.split(jax.random.key(seed))
            layers = (eqx.nn.Embedding(4, 3, key=one), eqx.nn.Linear(3, 4, key=two))
            return eqx.nn.Shared(layers, where=lambda pair: pair[1].weight, get=lambda pair: pair[0].weight)

        milepost.Checkpoint(model=make(1)).write(path)
        embedding, linear = restored(path, model=make(2)).model()
        assert jnp.array_equal(embedding.weight, make(1)()[0].weight)
        assert jnp.array_equal(linear.weight, embedding.weight)


def test_a_program_of_linen_needs_nothing_of_nnx(tmp_path):
    pytest.importorskip("flax.linen")
    program = f"""
import sys
from flax import linen
import jax.numpy as jnp, milepost.jax
sys.modules["flax.nnx"] = None  # no import of it succeeds
with milepost.jax.TreeManager({str(tmp_path)!r}) as manager:
    manager.save({{"w": jnp.ones(3)}}, 1)
    print(manager.restore_latest({{"w": jnp.zeros(3)}}))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert "1., 1., 1." in ended.stdout, ended.stderr
