"""`milepost.jax`: trees in, trees out."""

import os
import subprocess
import sys

import numpy as np
import pytest

import milepost
from milepost.restoring.status import InitializationOnlyStatus

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

import milepost.jax


def state(value):
    return {"params": {"w": jnp.full(3, value)}, "step": int(value), "key": jax.random.key(int(value)), "f": max}


def abstract(tree):
    arrays = {name: leaf for name, leaf in tree.items() if name != "f"}
    return {**jax.eval_shape(lambda: arrays), "step": 0, "f": min}


@pytest.mark.parametrize("like", [lambda: state(0.0), lambda: abstract(state(0.0))], ids=["arrays", "abstract"])
def test_a_tree_is_restored_like_another(path, like):
    milepost.jax.save(path, state(3.0))
    tree, status = milepost.jax.restore(path, like())
    status.assert_consumed().assert_existing_objects_matched()
    assert (tree["params"]["w"].tolist(), tree["step"]) == ([3, 3, 3], 3)
    assert jax.random.key_data(tree["key"]).tolist() == [0, 3]


def test_keys_are_those_of_the_tree(path):
    milepost.jax.save(path, state(3.0))
    assert [name for name, _ in milepost.list_variables(path)[1:]] == [
        "key/.ATTRIBUTES/VARIABLE_VALUE",
        "key/.ATTRIBUTES/impl",
        "params/w/.ATTRIBUTES/VARIABLE_VALUE",
        "step/.ATTRIBUTES/VARIABLE_VALUE",
    ]


@pytest.mark.parametrize(
    "tree", [jnp.arange(3.0), 7, (jnp.ones(2), {"a": 1.5}), {"root": jnp.ones(2)}, {"x": {}, "y": jnp.ones(2)}]
)
def test_any_tree_may_be_the_whole(path, tree):
    found, status = milepost.jax.restore(
        milepost.jax.save(path, tree), jax.tree.map(lambda leaf: type(leaf)(0) if type(leaf) is int else leaf * 0, tree)
    )
    status.assert_consumed()
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(tree), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("tree", [{}, None, (), max])
def test_a_tree_that_holds_nothing_is_refused(path, tree):
    with pytest.raises(milepost.UntrackableError, match="at least one value"):
        milepost.jax.save(path, tree)


def test_the_tree_that_was_given_stays_as_it_was(path):
    milepost.jax.save(path, {"w": jnp.ones(2), "n": np.ones(2)})
    given = {"w": jnp.zeros(2), "n": np.zeros(2)}
    tree, _ = milepost.jax.restore(path, given)
    assert [leaf.tolist() for leaf in given.values()] == [[0, 0], [0, 0]]
    assert [leaf.tolist() for leaf in tree.values()] == [[1, 1], [1, 1]]


def test_what_the_tree_lacks_is_reported_as_unexpected(path):
    milepost.jax.save(path, {"a": {"w": jnp.ones(2)}, "b": jnp.ones(2)})
    _, status = milepost.jax.restore(path, {"a": {"v": jnp.zeros(2)}})
    found = {(entry.outcome.name, entry.key.partition("/.ATT")[0]) for entry in status.report().entries}
    assert found == {("UNEXPECTED", "a/w"), ("UNEXPECTED", "b"), ("MISSING", "a/v")}


def test_a_status_can_be_asked_when_the_old_and_the_new_tree_are_gone(path):
    milepost.jax.save(path, state(3.0))
    status = milepost.jax.restore(path, state(0.0))[1]
    status.assert_consumed().assert_existing_objects_matched()


def test_files_of_a_checkpoint_and_of_trees_are_the_same(path):
    saved = milepost.Checkpoint(params={"w": jnp.ones(3)}, step=jnp.int32(5)).save(path)
    tree, status = milepost.jax.restore(saved, {"params": {"w": jnp.zeros(3)}, "step": 0})
    status.assert_consumed()
    milepost.jax.save(path, tree)
    checkpoint = milepost.Checkpoint(params={"w": jnp.zeros(3)}, step=jnp.int32(0))
    checkpoint.read(path).assert_consumed()
    assert int(checkpoint.step) == 5


def test_objects_among_the_leaves_are_restored_in_place(path):
    milepost.jax.save(path, {"w": jnp.ones(2), "v": milepost.Variable(3.0)})
    variable = milepost.Variable(0.0)
    tree, _ = milepost.jax.restore(path, {"w": jnp.zeros(2), "v": variable})
    assert tree["v"] is variable
    assert float(variable) == 3


def test_a_value_that_does_not_fit_is_named(path):
    milepost.jax.save(path, state(3.0))
    with pytest.raises(milepost.MismatchError, match="params/w"):
        milepost.jax.restore(path, {**state(0.0), "params": {"w": jnp.zeros(4)}})


def test_a_manager_goes_on_in_another_process(tmp_path):
    manager = milepost.jax.TreeManager(tmp_path, max_to_keep=2)
    tree, status = manager.restore_latest(state(0.0))
    assert isinstance(status, InitializationOnlyStatus)
    for step in range(1, 4):
        manager.save(state(float(step)))
    again = milepost.jax.TreeManager(tmp_path, max_to_keep=2)
    tree, status = again.restore_latest(state(0.0))
    status.assert_consumed()
    assert tree["step"] == 3
    assert os.path.basename(again.save(tree)) == "ckpt-4"
    assert [os.path.basename(each) for each in again.checkpoints] == ["ckpt-3", "ckpt-4"]


def test_a_manager_saves_while_training_goes_on(tmp_path):
    options = milepost.CheckpointOptions(enable_async=True)
    manager = milepost.jax.TreeManager(tmp_path, options=options)
    step = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)
    tree = {"w": jnp.ones(1000)}
    for _ in range(3):
        manager.save(tree)
        tree = step(tree)
    manager.sync()
    for number, saved in enumerate(manager.checkpoints, start=1):
        assert milepost.jax.restore(saved, {"w": jnp.zeros(1000)})[0]["w"].tolist() == [number] * 1000


def test_a_manager_passes_over_a_damaged_checkpoint(tmp_path):
    manager = milepost.jax.TreeManager(tmp_path)
    manager.save({"w": jnp.ones(100)})
    last = manager.save({"w": jnp.full(100, 2.0)})
    with open(last + ".data-00000-of-00001", "r+b") as file:
        file.write(b"damage")
    again = milepost.jax.TreeManager(tmp_path)
    assert again.skipped == {}
    with pytest.warns(milepost.SkippedCheckpointWarning):
        tree, _ = again.restore_latest({"w": jnp.zeros(100)})
    assert float(tree["w"][0]) == 1
    assert list(again.skipped) == [last]
    assert isinstance(again.skipped[last], milepost.CorruptCheckpointError)


PEAK = """
import sys
import jax, jax.numpy as jnp, numpy as np
import milepost, milepost.jax

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))

path = sys.argv[1]
tree = {f"w{i}": jax.ShapeDtypeStruct((4 << 20,), jnp.float32) for i in range(24)}
milepost.jax.restore(sys.argv[2], {"w": jnp.zeros(8)})  # what the first use costs once
before = status("VmRSS")
tree, _ = milepost.jax.restore(path, tree)
print(status("VmHWM") - before - sum(x.nbytes for x in tree.values()), float(tree["w23"][-1]))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="Linux tells the peak of a process's memory")
def test_restoring_takes_no_more_memory_than_the_state_and_a_little(tmp_path):
    large, small = str(tmp_path / "large"), str(tmp_path / "small")
    milepost.jax.save(large, {f"w{i}": np.full(4 << 20, i, np.float32) for i in range(24)} | {"x": jnp.ones(1)})
    milepost.jax.save(small, {"w": jnp.ones(8)})
    done = subprocess.run([sys.executable, "-c", PEAK, large, small], capture_output=True, text=True, check=True)
    beyond, last = done.stdout.split()
    assert float(last) == 23
    assert int(beyond) < 64 << 20


def test_a_report_does_not_mind_the_order_of_keys(tmp_path):
    path = milepost.jax.save(tmp_path / "ckpt", {"w": jnp.ones(2)})
    _, status = milepost.jax.restore(path, {"w": jnp.zeros(2), "more": jnp.zeros(1)})
    status.expect_partial()
    assert [each.key for each in status.report().missing] == ["more/.ATTRIBUTES/VARIABLE_VALUE"]


@jax.tree_util.register_pytree_node_class
class _ArraysOnly:
    """A node whose constructor makes arrays of what it is given, as many do."""

    def __init__(self, weights):
        self.weights = jnp.asarray(weights)

    def tree_flatten(self):
        return (self.weights,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@pytest.mark.parametrize("whole", [True, False])
def test_a_node_whose_class_takes_arrays_only_is_saved_and_restored(path, whole):
    def tree(value):
        node = _ArraysOnly(jnp.full(3, value))
        return node if whole else {"node": node, "step": jnp.int32(value)}

    milepost.jax.save(path, tree(7))
    restored, status = milepost.jax.restore(path, tree(0))
    status.assert_consumed()
    assert [each.tolist() for each in jax.tree.leaves(restored)] == [each.tolist() for each in jax.tree.leaves(tree(7))]
