"""Modules and all other graph nodes of NNX: what their children are, and under what names."""

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("flax.nnx")
import jax
import jax.numpy as jnp
from flax import nnx

import milepost
from milepost.graph.contract.operation import Operation
from milepost.graph.traversal import walk
from tests.adapters.flax.models import Net, Stack, keys, trainer


def linear(seed=0):
    return nnx.Linear(3, 3, rngs=nnx.Rngs(seed))


def restored(path, **objects):
    return milepost.Checkpoint(**objects).read(path).assert_consumed()


def test_keys_are_paths_of_attributes(path):
    milepost.Checkpoint(net=Net(nnx.Rngs(0))).write(path)
    assert keys(path) == [
        "net/dropout/rngs/count",
        "net/dropout/rngs/key",
        "net/l1/bias",
        "net/l1/kernel",
        "net/l2/bias",
        "net/l2/kernel",
        "net/norm/bias",
        "net/norm/mean",
        "net/norm/scale",
        "net/norm/var",
    ]


def test_children_come_in_the_order_of_their_declaration():
    assert [edge.name for edge in walk(Operation(Net(nnx.Rngs(0)))).edges[0]] == ["l1", "norm", "dropout", "l2"]


def test_layers_in_a_list_are_named_by_position(path):
    milepost.Checkpoint(net=Stack(2, nnx.Rngs(0))).write(path)
    assert keys(path) == [f"net/layers/{number}/{name}" for number in (0, 1) for name in ("bias", "kernel")]


def test_a_list_that_was_changed_is_saved_as_it_is_now(path):
    net = Stack(2, nnx.Rngs(0))
    net.layers.insert(0, linear(1))
    del net.layers[2]
    milepost.Checkpoint(net=net).write(path)
    fresh = Stack(2, nnx.Rngs(2))
    restored(path, net=fresh)
    for number in (0, 1):
        np.testing.assert_array_equal(fresh.layers[number].kernel, net.layers[number].kernel)


def test_members_of_a_sequential_are_found(path):
    saved, fresh = (nnx.Sequential(linear(seed), nnx.relu, linear(seed + 1)) for seed in (0, 5))
    milepost.Checkpoint(net=saved).write(path)
    restored(path, net=fresh)
    assert "net/layers/2/kernel" in keys(path)
    np.testing.assert_array_equal(fresh.layers[2].kernel, saved.layers[2].kernel)


def test_members_of_a_dict_are_named_by_key(path):
    saved, fresh = (nnx.Dict(first=linear(seed), rate=0.5) for seed in (0, 1))
    milepost.Checkpoint(net=saved).write(path)
    restored(path, net=fresh)
    assert keys(path) == ["net/first/bias", "net/first/kernel"]
    np.testing.assert_array_equal(fresh["first"].kernel, saved["first"].kernel)


def test_arrays_and_containers_in_attributes_are_restored(path):
    def make(value):
        class Holder(nnx.Module):
            def __init__(self):
                self.array = jnp.full(2, value)
                self.pair = nnx.data((jnp.full(2, value), nnx.Param(jnp.full(2, value))))
                self.named = nnx.data({"a": jnp.full(2, value), "b": [jnp.full(2, value)]})
                self.numpy = np.full(2, value)

        return Holder()

    saved, fresh = make(1.0), make(2.0)
    milepost.Checkpoint(net=saved).write(path)
    restored(path, net=fresh)
    assert keys(path) == ["net/array", "net/named/a", "net/named/b/0", "net/numpy", "net/pair/0", "net/pair/1"]
    for leaf in jax.tree.leaves(fresh):
        np.testing.assert_array_equal(leaf, [1.0, 1.0])


def test_attributes_that_were_data_are_data_after_a_restore(path):
    class Holder(nnx.Module):
        def __init__(self):
            self.pair = nnx.data((jnp.ones(2),))

    holder = Holder()
    before = jax.tree.structure(holder)
    milepost.Checkpoint(net=holder).write(path)
    restored(path, net=holder)
    assert jax.tree.structure(holder) == before


def test_objects_that_are_no_pytrees_are_nodes_too(path):
    class Plain(nnx.Object):
        def __init__(self, seed):
            self.layer = linear(seed)

    saved, fresh = Plain(0), Plain(1)
    milepost.Checkpoint(net=saved).write(path)
    restored(path, net=fresh)
    np.testing.assert_array_equal(fresh.layer.kernel, saved.layer.kernel)


def test_a_shared_layer_is_saved_once_and_stays_shared(path):
    def make(seed):
        layer = linear(seed)
        return nnx.Dict(first=layer, second=layer)

    saved, fresh = make(0), make(1)
    milepost.Checkpoint(net=saved).write(path)
    restored(path, net=fresh)
    assert keys(path) == ["net/first/bias", "net/first/kernel"]
    assert fresh["first"] is fresh["second"]
    np.testing.assert_array_equal(fresh["second"].kernel, saved["first"].kernel)


def test_a_tied_variable_is_saved_once_and_stays_tied(path):
    def make(seed):
        first, second = linear(seed), linear(seed + 1)
        second.kernel = first.kernel
        return nnx.List([first, second])

    saved, fresh = make(0), make(5)
    milepost.Checkpoint(net=saved).write(path)
    restored(path, net=fresh)
    assert keys(path) == ["net/0/bias", "net/0/kernel", "net/1/bias"]
    assert fresh[0].kernel is fresh[1].kernel


def test_random_streams_go_on_where_they_were(path):
    saved, fresh = nnx.Rngs(0, dropout=1), nnx.Rngs(2, dropout=3)
    saved.dropout()
    milepost.Checkpoint(rngs=saved).write(path)
    restored(path, rngs=fresh)
    assert keys(path)[0] == "rngs/default/count"
    for stream in ("default", "dropout"):
        assert jnp.array_equal(jax.random.key_data(fresh[stream]()), jax.random.key_data(saved[stream]()))


def test_metrics_are_restored_in_the_middle_of_an_epoch(path):
    def make():
        return nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))

    def update(metrics, loss):
        metrics.update(logits=jnp.eye(3), labels=jnp.array([0, 1, 1]), loss=loss)

    saved, fresh = make(), make()
    update(saved, 1.0)
    milepost.Checkpoint(metrics=saved).write(path)
    update(fresh, 7.0)
    restored(path, metrics=fresh)
    update(saved, 2.0)
    update(fresh, 2.0)
    assert fresh.compute() == saved.compute()


def test_a_state_restores_into_the_module_it_was_taken_from(path):
    saved, fresh = Stack(2, nnx.Rngs(0)), Stack(2, nnx.Rngs(1))
    milepost.Checkpoint(net=nnx.state(saved)).write(path)
    restored(path, net=fresh)
    np.testing.assert_array_equal(fresh.layers[1].kernel, saved.layers[1].kernel)


def test_a_module_restores_into_a_state_of_arrays(path):
    net = Stack(2, nnx.Rngs(0))
    milepost.Checkpoint(net=net).write(path)
    graphdef, state = nnx.split(Stack(2, nnx.Rngs(1)))
    checkpoint = milepost.Checkpoint(net=nnx.as_pure(state))
    checkpoint.read(path).assert_consumed()
    np.testing.assert_array_equal(nnx.merge(graphdef, checkpoint.net).layers[1].kernel, net.layers[1].kernel)


def test_a_dict_refuses_keys_that_paths_cannot_tell_apart(path):
    class Holder(nnx.Module):
        def __init__(self):
            self.paths = nnx.data({("a", "b"): nnx.Param(jnp.ones(2)), ("a/b",): nnx.Param(jnp.ones(2))})

    with pytest.raises(milepost.UntrackableError, match=r"(?s)same name.*key: net/paths"):
        milepost.Checkpoint(net=Holder()).write(path)


def test_dicts_of_positions_and_of_paths_in_attributes_are_restored(path):
    class Holder(nnx.Module):
        def __init__(self, value):
            self.named = nnx.data({0: {1: jnp.full(2, value)}, 1: nnx.Param(jnp.full(2, value))})
            self.paths = nnx.data({("a", 0): jnp.full(2, value), ("a", 1): nnx.Param(jnp.full(2, value))})

    saved, fresh = Holder(1.0), Holder(2.0)
    milepost.Checkpoint(net=saved).write(path)
    restored(path, net=fresh)
    assert keys(path) == ["net/named/0/1", "net/named/1", "net/paths/a.S0", "net/paths/a.S1"]
    for leaf in (fresh.named[0][1], fresh.named[1].get_value(), fresh.paths["a", 0], fresh.paths["a", 1].get_value()):
        np.testing.assert_array_equal(leaf, [1.0, 1.0])


def test_a_model_is_a_root(path):
    saved, fresh = Net(nnx.Rngs(0)), Net(nnx.Rngs(1))
    milepost.Checkpoint(saved).write(path)
    milepost.Checkpoint(fresh).read(path).assert_consumed()
    assert keys(path)[1:3] == ["dropout/rngs/key", "l1/bias"]
    np.testing.assert_array_equal(fresh.l1.kernel, saved.l1.kernel)


def test_a_trackable_in_a_container_that_has_no_names_is_warned_of(path):
    class Holder(nnx.Module):
        def __init__(self):
            self.group = nnx.static(frozenset({milepost.Module()}))

    with pytest.warns(
        milepost.UntrackedWarning, match="net/group: not saved: an object of type frozenset is not tracked"
    ):
        milepost.Checkpoint(net=Holder()).write(path)


def test_the_whole_trainer_is_one_checkpoint(path):
    saved, fresh = trainer(0), trainer(1)
    saved.write(path)
    fresh.read(path).assert_consumed()
    left, right = (
        jax.tree.leaves(nnx.state((each.net, each.optimizer), nnx.Not(nnx.RngKey))) for each in (saved, fresh)
    )
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("value", [3, 2.5, True, 1j, "text", b"bytes"])
def test_numbers_and_text_that_are_marked_as_data_are_state(path, value):
    class Holder(nnx.Module):
        def __init__(self, value):
            self.value = nnx.data(value)
            self.setting = value

    milepost.Checkpoint(net=Holder(value)).write(path)
    fresh = Holder(type(value)())
    restored(path, net=fresh)
    assert keys(path) == ["net/value"]
    assert (fresh.value, type(fresh.value)) == (value, type(value))
    assert fresh.setting == type(value)()
    assert jax.tree.leaves(nnx.state(fresh)) == [value]


def test_a_module_that_is_no_pytree_marks_no_data(path):
    class Holder(nnx.Module, pytree=False):
        def __init__(self, value):
            self.setting = value
            self.array = jnp.full(2, value)
            self.listed = [jnp.full(2, value)]

    milepost.Checkpoint(net=Holder(1.0)).write(path)
    fresh = Holder(2.0)
    restored(path, net=fresh)
    assert (fresh.setting, fresh.array.tolist(), fresh.listed[0].tolist()) == (2.0, [1, 1], [1, 1])
