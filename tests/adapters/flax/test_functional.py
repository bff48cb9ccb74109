"""Modules, variables and optimizers of NNX in `milepost.jax`, where trees are values."""

import gc
import warnings

import pytest

pytest.importorskip("flax.nnx")
import jax
import jax.numpy as jnp
import optax
from flax import nnx

import milepost
import milepost.jax


def make(seed):
    net = nnx.Sequential(nnx.Linear(2, 3, rngs=nnx.Rngs(seed)), nnx.Dropout(0.5, rngs=nnx.Rngs(seed)))
    return net, nnx.Optimizer(net, optax.adam(1e-3), wrt=nnx.Param)


TREES = {
    "module": lambda net, optimizer: net,
    "optimizer": lambda net, optimizer: optimizer,
    "state": lambda net, optimizer: nnx.state(net),
    "both": lambda net, optimizer: {"net": net, "optimizer": optimizer, "step": jnp.ones(())},
    "state of both": lambda net, optimizer: {"state": nnx.state((net, optimizer))},
    "plain": lambda net, optimizer: nnx.to_pure_dict(nnx.state(net)),
}


def are_same(some, others):
    return all(bool(jnp.all(a == b)) for a, b in zip(jax.tree.leaves(some), jax.tree.leaves(others), strict=True))


@pytest.fixture(params=TREES)
def tree(request):
    return TREES[request.param]


@pytest.fixture
def path(tree, tmp_path):
    return milepost.jax.save(tmp_path / "ckpt", tree(*make(0)))


def test_a_restore_makes_new_objects_with_the_saved_values(tree, path):
    restored, status = milepost.jax.restore(path, tree(*make(1)))
    status.assert_consumed()
    assert are_same(restored, tree(*make(0)))


def test_nothing_of_the_callers_tree_is_changed(tree, path):
    net, optimizer = make(1)
    milepost.jax.restore(path, tree(net, optimizer))
    assert are_same((net, optimizer), make(1))


def test_a_manager_does_the_same(tree, tmp_path):
    milepost.jax.TreeManager(tmp_path).save(tree(*make(0)))
    given = tree(*make(1))
    restored, status = milepost.jax.TreeManager(tmp_path).restore_latest(given)
    status.assert_consumed()
    assert are_same(restored, tree(*make(0)))
    assert are_same(given, tree(*make(1)))


def test_no_restored_value_is_warned_of_when_tree_and_status_are_dropped(tree, path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        milepost.jax.restore(path, tree(*make(1)))
        gc.collect()


def test_only_what_is_missing_is_warned_of(tmp_path):
    path = milepost.jax.save(tmp_path / "ckpt", {"net": make(0)[0]})
    _, status = milepost.jax.restore(path, {"net": make(1)[0], "late": jnp.ones(2)})
    with pytest.warns(milepost.UnrestoredWarning, match="1 live value is not in the checkpoint"):
        del status


def test_what_a_model_shares_is_shared_in_the_new_one(tmp_path):
    net = make(0)[0]
    path = milepost.jax.save(tmp_path / "ckpt", {"a": net, "b": net})
    live = make(1)[0]
    restored, status = milepost.jax.restore(path, {"a": live, "b": live})
    status.assert_consumed()
    assert restored["a"] is restored["b"]


def test_a_module_that_holds_itself_does_so_in_the_new_tree(tmp_path):
    net = make(0)[0]
    net.again = net
    path = milepost.jax.save(tmp_path / "ckpt", net)
    live = make(1)[0]
    live.again = live
    restored, status = milepost.jax.restore(path, live)
    status.assert_consumed()
    assert restored.again is restored
    assert restored is not live
    assert are_same(restored.layers[0].kernel, net.layers[0].kernel)


VARIABLES = {
    "plain": lambda value: nnx.Param(jnp.full(2, value), tag="own"),
    "reference": lambda value: nnx.Param(jnp.full(2, value), ref=True, tag="own"),
    "hijax": lambda value: nnx.Param(jnp.full(2, value), hijax=True, tag="own"),
    "container": lambda value: nnx.Variable({"a": jnp.full(2, value), "b": value}, tag="own"),
}


@pytest.fixture(params=VARIABLES)
def variable(request):
    return VARIABLES[request.param]


@pytest.mark.parametrize("beside", [{}, {"net": nnx.Dict()}], ids=["alone", "beside a module"])
def test_a_variable_in_a_tree_is_replaced_by_one_with_its_metadata(tmp_path, variable, beside):
    path = milepost.jax.save(tmp_path / "ckpt", {"v": variable(1.0), "w": jnp.ones(2), **beside})
    live = variable(5.0)
    restored, status = milepost.jax.restore(path, {"v": live, "w": jnp.zeros(2), **beside})
    status.assert_consumed()
    assert type(restored["v"]) is type(live)
    assert restored["v"].get_metadata() == live.get_metadata()
    assert are_same(restored["v"].get_value(), variable(1.0).get_value())
    assert are_same(live.get_value(), variable(5.0).get_value())


def test_a_variable_in_two_places_of_a_tree_is_one_in_the_new_tree(tmp_path):
    path = milepost.jax.save(tmp_path / "ckpt", {"a": (shared := nnx.Param(jnp.ones(2))), "b": shared})
    restored, _ = milepost.jax.restore(path, {"a": (live := nnx.Param(jnp.zeros(2))), "b": live})
    assert restored["a"] is restored["b"]
    assert restored["a"] is not live


def test_a_status_tells_of_variables_when_the_new_tree_is_gone(tmp_path):
    path = milepost.jax.save(tmp_path / "ckpt", nnx.State({"a": nnx.Param(jnp.ones(2))}))
    live = nnx.State({"a": nnx.Param(jnp.zeros(2)), "late": nnx.Param(jnp.zeros(3))})
    restored, status = milepost.jax.restore(path, live)
    del restored, live
    gc.collect()
    found = {entry.key: entry.outcome.value for entry in status.report()}
    status.expect_partial()
    assert sorted(found.values()) == ["matched", "missing"]


class Table(nnx.Module):
    def __init__(self):
        self.rows = nnx.data({"a": jnp.zeros(2)})


@pytest.fixture
def mixed_table():
    """A module with keys that JAX cannot sort. NNX looks at the keys when it makes a module, and not later."""
    table = Table()
    table.rows[1] = jnp.zeros(2)
    return table


def test_a_module_whose_keys_jax_cannot_sort_is_not_saved(mixed_table, tmp_path):
    with pytest.raises(milepost.UntrackableError, match="all text or all numbers") as refused:
        milepost.jax.save(tmp_path / "ckpt", {"table": mixed_table})
    assert refused.value.key == "table"


def test_a_module_whose_keys_jax_cannot_sort_is_restored_and_no_assertion_passes(mixed_table, tmp_path):
    saved = Table()
    saved.rows["a"] = jnp.ones(2)
    path = milepost.jax.save(tmp_path / "ckpt", {"table": saved})
    restored, status = milepost.jax.restore(path, {"table": mixed_table})
    with pytest.raises(milepost.UntrackableError, match="all text or all numbers"):
        status.assert_consumed()
    rows = restored["table"].rows
    assert list(rows) == ["a", 1]
    assert are_same([rows["a"], rows[1]], [jnp.ones(2), jnp.zeros(2)])
    assert are_same(mixed_table.rows["a"], jnp.zeros(2))


def test_a_variable_whose_keys_jax_cannot_sort_is_not_restored(tmp_path):
    path = milepost.jax.save(tmp_path / "ckpt", {"v": nnx.Variable({"a": jnp.ones(2)})})
    live = nnx.Variable({"a": jnp.zeros(2)})
    live.get_raw_value()[1] = jnp.zeros(2)
    with pytest.raises(milepost.UntrackableError, match="all text or all numbers"):
        milepost.jax.restore(path, {"v": live})


def test_a_variable_in_the_value_of_a_variable_is_copied(tmp_path):
    path = milepost.jax.save(tmp_path / "ckpt", {"w": jnp.ones(2)})
    live = nnx.Variable({"inner": [nnx.Variable(jnp.zeros(2))]})
    restored, _ = milepost.jax.restore(path, {"w": jnp.zeros(2), "v": live})
    assert restored["v"].get_raw_value()["inner"][0] is not live.get_raw_value()["inner"][0]
