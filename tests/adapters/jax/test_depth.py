"""Trees of many levels; JAX itself takes them up to Python's limit of recursion."""

import pytest

import milepost

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

import milepost.jax

LEVELS = 1000
KINDS = {
    "dict": (lambda below: {"a": below}, lambda tree: tree["a"]),
    "list": (lambda below: [below], lambda tree: tree[0]),
    "tuple": (lambda below: (below,), lambda tree: tree[0]),
    "partial": (lambda below: jax.tree_util.Partial(max, below), lambda tree: tree.args[0]),
}


def levels(kind):
    return LEVELS // 4 if kind == "partial" else LEVELS  # nodes of classes take longer


def make(kind, value):
    tree = jnp.full(2, value)
    for _ in range(levels(kind)):
        tree = KINDS[kind][0](tree)
    return tree


def lowest(kind, tree):
    for _ in range(levels(kind)):
        tree = KINDS[kind][1](tree)
    return tree.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_deep_tree_round_trips(tmp_path, kind):
    path = milepost.jax.save(tmp_path / "ckpt", make(kind, 1.0))
    tree, status = milepost.jax.restore(path, make(kind, 0.0))
    status.assert_consumed()
    assert lowest(kind, tree) == [1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_deep_tree_in_a_checkpoint_round_trips(tmp_path, kind):
    path = milepost.Checkpoint(state=make(kind, 1.0)).write(tmp_path / "ckpt")
    checkpoint = milepost.Checkpoint(state=make(kind, 0.0))
    checkpoint.read(path).assert_consumed()
    assert lowest(kind, checkpoint.state) == [1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_deep_tree_that_comes_late_has_its_values(tmp_path, kind):
    path = milepost.Checkpoint(state=make(kind, 1.0)).write(tmp_path / "ckpt")
    checkpoint = milepost.Checkpoint()
    status = checkpoint.read(path)
    checkpoint.state = make(kind, 0.0)
    status.assert_consumed()
    assert lowest(kind, checkpoint.state) == [1, 1]


def test_a_manager_keeps_deep_trees(tmp_path):
    manager = milepost.jax.TreeManager(tmp_path)
    manager.save(make("dict", 1.0))
    tree, status = manager.restore_latest(make("dict", 0.0))
    status.assert_consumed()
    assert lowest("dict", tree) == [1, 1]
