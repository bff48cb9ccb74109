"""Trees of arrays stay what they are: they are saved under the names that JAX has, and restored as new trees."""

import typing
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import milepost
from milepost.engine.report import Outcome
from milepost.graph.containers import DictWrapper, ListWrapper

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

import milepost.jax
from tests.adapters.jax.restoring import restored


class Pair(typing.NamedTuple):
    left: object
    right: object


@jax.tree_util.register_dataclass
@dataclass
class Layer:
    kernel: object
    bias: object


class Unkeyed:
    """A node of a class that JAX knows, without names."""

    def __init__(self, first, second, label):
        self.first, self.second, self.label = first, second, label


jax.tree_util.register_pytree_node(
    Unkeyed,
    lambda node: ((node.first, node.second), node.label),
    lambda label, children: Unkeyed(children[0], children[1], label),
)


def zeros(tree):
    return jax.tree.map(lambda leaf: leaf * 0 if isinstance(leaf, (jax.Array, np.ndarray)) else leaf, tree)


def keys(path):
    return [name.partition("/.ATTRIBUTES")[0] for name, _ in milepost.list_variables(path)[1:]]


def assert_equal(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert type(a) is type(b)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


TREES = {
    "dict": ({"dense": {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3)}}, ["dense/bias", "dense/kernel"]),
    "positions as keys": ({0: jnp.ones(2), 1: {2: jnp.ones(3)}}, ["0", "1/2"]),
    "ordered dict": (OrderedDict(b=jnp.ones(2), a=jnp.ones(3)), ["a", "b"]),
    "default dict": (defaultdict(list, b=[jnp.ones(2)]), ["b/0"]),
    "list": ([jnp.ones(2), [jnp.ones(3)]], ["0", "1/0"]),
    "tuple": ((jnp.ones(2), (), None, (jnp.ones(3),)), ["0", "3/0"]),
    "named tuple": (Pair(jnp.ones(2), {"x": jnp.ones(3)}), ["left", "right/x"]),
    "dataclass": (Layer(jnp.ones(2), jnp.ones(3)), ["bias", "kernel"]),
    "node without names": (Unkeyed(jnp.ones(2), {"x": jnp.ones(3)}, "label"), ["0", "1/x"]),
    "a closed-over function": (jax.tree_util.Partial(max, jnp.ones(2)), ["0/0"]),
    "arrays of NumPy beside": ({"a": jnp.ones(2), "b": np.ones(3), "c": np.float32(1)}, ["a", "b", "c"]),
}


@pytest.mark.parametrize("name", TREES)
def test_trees_round_trip_under_jax_names(path, name):
    tree, names = TREES[name]
    milepost.Checkpoint(tree=tree).write(path)
    assert keys(path) == [f"tree/{each}" for each in names]
    assert_equal(restored(path, tree=zeros(tree)).tree, tree)


def test_a_tree_is_not_wrapped(path):
    tree = {"a": [jnp.ones(2)], "b": ()}
    assert milepost.Checkpoint(tree=tree).tree is tree
    module = milepost.Module()
    module.tree = tree
    assert type(module.tree["a"]) is list


def test_a_restore_leaves_the_old_tree_as_it_was(path):
    milepost.Checkpoint(tree={"a": jnp.ones(2), "b": np.ones(2)}).write(path)
    old = {"a": jnp.zeros(2), "b": np.zeros(2)}
    new = restored(path, tree=old).tree
    assert new is not old
    assert [old["a"].tolist(), old["b"].tolist()] == [[0, 0], [0, 0]]
    assert [new["a"].tolist(), new["b"].tolist()] == [[1, 1], [1, 1]]


def test_a_container_of_numpy_arrays_alone_is_wrapped_and_restored_in_place(path):
    old = np.zeros(2)
    milepost.Checkpoint(tree={"b": np.ones(2)}).write(path)
    tree = restored(path, tree={"b": old}).tree
    assert type(tree) is DictWrapper
    assert old.tolist() == [1, 1]


def test_one_array_in_two_places_is_two_values(path):
    shared = jnp.zeros(2)
    milepost.Checkpoint(params={"w": jnp.ones(2)}, average={"w": jnp.full(2, 5.0)}).write(path)
    got = restored(path, params={"w": shared}, average={"w": shared})
    assert (got.params["w"].tolist(), got.average["w"].tolist()) == ([1, 1], [5, 5])


def test_one_tree_in_two_attributes_is_saved_for_each(path):
    tree = {"w": jnp.ones(2)}
    milepost.Checkpoint(params=tree, target=tree).write(path)
    got = restored(path, params={"w": jnp.zeros(2)}, target={"w": jnp.zeros(2)})
    assert (got.params["w"].tolist(), got.target["w"].tolist()) == ([1, 1], [1, 1])


@pytest.mark.parametrize("number", [True, 7, -(2**40), 0.1, float("inf"), 1 - 2j])
def test_numbers_in_a_tree_are_data_and_keep_their_type(path, number):
    milepost.Checkpoint(state={"x": jnp.ones(2), "n": number}).write(path)
    got = restored(path, state={"x": jnp.ones(2), "n": type(number)(0)}).state["n"]
    assert (type(got), got) == (type(number), number)


@pytest.mark.parametrize(
    ("saved", "live"),
    [
        (7, jnp.int32(0)),
        (jnp.int32(7), 0),
        (7, jnp.uint8(0)),
        (2.5, jnp.float32(0)),
        (jnp.bfloat16(2.5), 0.0),
        (0.1, jnp.asarray(0.0)),
        (3, 0.0),
        (7, np.int32(0)),
        (0.1, jnp.float32(0)),
    ],
)
def test_numbers_and_arrays_without_dimensions_take_each_other(path, saved, live):
    milepost.Checkpoint(state={"x": jnp.ones(2), "n": saved}).write(path)
    got = restored(path, state={"x": jnp.ones(2), "n": live}).state["n"]
    assert type(got) is type(live)
    assert getattr(got, "dtype", None) == getattr(live, "dtype", None)
    assert got == pytest.approx(float(saved))


@pytest.mark.parametrize(
    ("saved", "live"), [(300, jnp.uint8(0)), (2**31, jnp.int32(0)), (1e300, jnp.float32(0)), (2.5, 0), (2**60 + 1, 0.0)]
)
def test_a_number_that_does_not_fit_is_refused(path, saved, live):
    milepost.Checkpoint(state={"x": jnp.ones(2), "n": saved}).write(path)
    fresh = milepost.Checkpoint(state={"x": jnp.zeros(2), "n": live})
    with pytest.raises(milepost.MismatchError, match=r"(?s)key: state/n/"):
        fresh.read(path)
    assert fresh.state["x"].tolist() == [0, 0]


def test_a_number_of_more_than_64_bits_is_refused_with_its_key(path):
    with pytest.raises(milepost.UntrackableError, match=r"(?s)64 bits.*key: state/n"):
        milepost.Checkpoint(state={"x": jnp.ones(2), "n": 2**70}).write(path)


def test_what_is_no_data_is_left_alone(path):
    milepost.Checkpoint(state={"x": jnp.ones(2), "f": max, "none": None}).write(path)
    assert keys(path) == ["state/x"]
    got = restored(path, state={"x": jnp.zeros(2), "f": min, "none": None}).state
    assert got["f"] is min


@pytest.mark.parametrize(
    "bag",
    [{milepost.Module()}, deque([np.ones(2)]), deque([{"y": jnp.ones(2)}])],
    ids=["set", "deque of arrays", "deque of dicts"],
)
def test_a_container_that_is_no_node_is_refused_with_its_path(path, bag):
    kind = type(bag).__name__
    with pytest.raises(
        milepost.UntrackableError, match=f"would not be saved: an object of type {kind} is not tracked"
    ) as caught:
        milepost.Checkpoint(state={"x": jnp.ones(2), "bag": bag}).write(path)
    assert caught.value.key == "state/bag"


def test_objects_in_a_tree_are_restored_in_place(path):
    milepost.Checkpoint(state={"x": jnp.ones(2), "v": milepost.Variable(3.0)}).write(path)
    variable = milepost.Variable(0.0)
    got = restored(path, state={"x": jnp.zeros(2), "v": variable})
    assert got.state["v"] is variable
    assert float(variable) == 3


def test_keys_that_are_one_as_text_are_refused(path):
    with pytest.raises(milepost.UntrackableError, match=r"(?s)same name.*1 and '1'"):
        milepost.Checkpoint(tree={1: jnp.ones(2), "1": jnp.ones(2)}).write(path)


def test_a_list_that_holds_itself_is_refused(path):
    tree = [jnp.ones(2)]
    tree.append(tree)
    with pytest.raises(milepost.UntrackableError, match="holds itself"):
        milepost.Checkpoint(tree=tree).write(path)


@pytest.mark.parametrize("between", [0, 1, 70, 600])
def test_a_tree_that_holds_itself_some_levels_below_is_refused(path, between):
    tree = top = {"w": jnp.ones(2)}
    for _ in range(between):
        tree["below"] = tree = {}
    tree["below"] = top
    for save in (lambda: milepost.Checkpoint(tree=top).write(path), lambda: milepost.jax.save(path, top)):
        with pytest.raises(milepost.UntrackableError, match="holds itself"):
            save()
    with pytest.raises(milepost.UntrackableError, match="holds itself"):
        milepost.jax.restore(milepost.jax.save(path, {"w": jnp.ones(2)}), top)


def test_a_tree_cannot_be_the_root():
    with pytest.raises(milepost.UntrackableError, match=r"(?s)root.*milepost\.jax\.save"):
        milepost.Checkpoint({"w": jnp.ones(2)})


def test_a_tree_beside_a_root_is_put_where_it_was(path):
    def checkpoint(value):
        return milepost.Checkpoint(milepost.Checkpoint(w=milepost.Variable(value)), params={"w": jnp.full(2, value)})

    checkpoint(1.0).write(path)
    fresh = checkpoint(0.0)
    fresh.read(path).assert_consumed()
    assert fresh.params["w"].tolist() == [1, 1]


def test_wrappers_are_nodes_of_jax_trees(path):
    checkpoint = milepost.Checkpoint()
    checkpoint.mapped, checkpoint.listed, checkpoint.ordered = {}, [], OrderedDict()
    checkpoint.mapped["w"] = jnp.ones(2)
    checkpoint.listed.append({"w": jnp.ones(2)})
    checkpoint.ordered["w"] = jnp.ones(2)
    for wrapper in (checkpoint.mapped, checkpoint.listed, checkpoint.ordered):
        doubled = jax.jit(lambda tree: jax.tree.map(lambda x: x * 2, tree))(wrapper)
        assert type(doubled) is type(wrapper)
        assert jax.tree.leaves(doubled)[0].tolist() == [2, 2]
    ((key, _),) = jax.tree_util.tree_leaves_with_path(checkpoint.mapped)
    assert key == (jax.tree_util.DictKey("w"),)
    checkpoint.write(path)
    assert keys(path) == ["listed/0/w", "mapped/w", "ordered/w"]
    fresh = milepost.Checkpoint(mapped={"w": jnp.zeros(2)}, listed=[{"w": jnp.zeros(2)}], ordered={"w": jnp.zeros(2)})
    fresh.read(path).assert_consumed()
    assert fresh.listed[0]["w"].tolist() == [1, 1]


def test_a_list_wrapper_of_arrays_is_restored_in_place(path):
    checkpoint = milepost.Checkpoint(listed=[])
    checkpoint.listed.append(jnp.ones(2))
    checkpoint.write(path)
    fresh = milepost.Checkpoint(listed=[])
    listed = fresh.listed
    listed.append(jnp.zeros(2))
    fresh.read(path).assert_consumed()
    assert type(listed) is ListWrapper
    assert listed[0].tolist() == [1, 1]


def layers(count, value):
    return {f"layer_{i}": {"kernel": jnp.full((2, 2), value), "bias": jnp.full(2, value)} for i in range(count)}


def test_twelve_layers_into_sixteen_are_reported_exactly(path):
    milepost.Checkpoint(params=layers(12, 1.0)).write(path)
    fresh = milepost.Checkpoint(params=layers(16, 0.0))
    status = fresh.read(path)
    missing = [entry.key for entry in status.report().entries if entry.outcome is Outcome.MISSING]
    assert missing == [
        f"params/layer_{i}/{name}/.ATTRIBUTES/VARIABLE_VALUE" for i in range(12, 16) for name in ("bias", "kernel")
    ]
    assert len(status.report().entries) == 32
    with pytest.raises(milepost.UnmatchedError, match="layer_12/bias"):
        status.assert_existing_objects_matched()
    assert fresh.params["layer_11"]["bias"].tolist() == [1, 1]
    assert fresh.params["layer_12"]["bias"].tolist() == [0, 0]


def test_a_renamed_layer_is_reported_on_both_sides(path):
    milepost.Checkpoint(params={"first": jnp.ones(2), "last": jnp.ones(2)}).write(path)
    fresh = milepost.Checkpoint(params={"first": jnp.zeros(2), "head": jnp.zeros(2)})
    report = str(fresh.read(path).report())
    assert "params/head" in report.partition("missing (")[2]
    assert "params/last" in report.partition("deferred (")[2]


def test_an_object_that_allows_no_weak_reference_is_no_reason_for_silence(path):
    @jax.tree_util.register_pytree_node_class
    class Slotted:
        __slots__ = ("x",)

        def __init__(self, x):
            self.x = x

        def tree_flatten(self):
            return (self.x,), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    milepost.Checkpoint(node=Pair(jnp.ones(2), jnp.ones(2))).write(path)
    checkpoint = milepost.Checkpoint(node=Slotted(jnp.zeros(2)))
    status = checkpoint.read(path)
    assert checkpoint.node.x.tolist() == [1, 1]
    with pytest.raises(milepost.UnmatchedError, match="node/right"):
        status.assert_consumed()


leaves = st.sampled_from(
    [
        lambda n: jnp.arange(n, dtype=jnp.float32),
        lambda n: jnp.asarray(float(n)),
        lambda n: np.arange(n, dtype=np.int16),
        lambda n: n,
        lambda n: float(n),
        lambda n: n > 1,
        lambda n: None,
        lambda n: jnp.full((1, n), n, jnp.bfloat16),
    ]
)
shapes = st.recursive(
    leaves,
    lambda below: st.one_of(
        st.lists(below, max_size=3),
        st.lists(below, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from(["a", "b", "c/d", ".x", "%"]), below, max_size=3),
        st.dictionaries(st.integers(0, 3), below, max_size=3),
        st.tuples(below, below).map(lambda two: Pair(*two)),
        st.tuples(below, below).map(lambda two: Layer(*two)),
        st.tuples(below, below).map(lambda two: Unkeyed(*two, "label")),
    ),
    max_leaves=8,
)


@hypothesis.given(shapes)
@hypothesis.settings(max_examples=60)
def test_any_tree_round_trips(tmp_path_factory, shape):
    path = str(tmp_path_factory.getbasetemp() / "any")

    def build(n):
        return {"any": jax.tree.map(lambda leaf: leaf(n), shape), "array": jnp.ones(2)}

    tree = build(2)
    milepost.Checkpoint(tree=tree).write(path)
    assert_equal(restored(path, tree=zeros(build(2))).tree, tree)


def test_a_saved_tree_with_a_node_of_a_class_keeps_everything_else(tmp_path):
    tree = {"layer": Layer(jnp.ones(2), jnp.zeros(1)), "step": 3, "empty": [], "in": {"l": [1, (2, None)], "s": {4}}}
    found = milepost.load(milepost.save(tmp_path / "ckpt", tree))
    layer = found.pop("layer")
    assert {name: each.tolist() for name, each in layer.items()} == {"kernel": [1.0, 1.0], "bias": [0.0]}
    del tree["layer"]
    assert found == tree
