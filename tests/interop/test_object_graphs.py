"""Random object graphs, written by one of TensorFlow and milepost and restored by the other, with every assertion."""

import collections
import operator
import os
import warnings
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import milepost

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

names = st.sampled_from(["a", "b", "kernel", "l1", "x.y", "x/y", ".", "/", "..", ".S", "0", "1", "ä", " ", "_p", ""])
attribute_names = st.sampled_from(["a", "b", "kernel", "l1", "with.dot", "with/slash", "ä", "_p", "x1"])
leaves = st.tuples(
    st.just("variable"),
    st.sampled_from(["float32", "int64", "bool", "string", "float64", "complex64"]),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.integers(0, 1000),
)
first = operator.itemgetter(0)
recipes = st.recursive(
    leaves | st.tuples(st.just("shared"), st.integers(0, 20)),
    lambda inner: st.one_of(
        st.tuples(st.just("module"), st.lists(st.tuples(attribute_names, inner), max_size=4, unique_by=first)),
        st.tuples(st.just("list"), st.lists(inner, max_size=4)),
        st.tuples(st.just("dict"), st.lists(st.tuples(names, inner), max_size=4, unique_by=first)),
        st.tuples(st.just("tuple"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("named tuple"), st.lists(inner, min_size=2, max_size=2)),
        st.tuples(st.just("ordered dict"), st.lists(st.tuples(names, inner), max_size=3, unique_by=first)),
    ),
    max_leaves=12,
)
roots = st.lists(st.tuples(st.sampled_from("abcde"), recipes), min_size=1, max_size=4, unique_by=first)


def array_of(dtype, shape, seed):
    count = int(np.prod(shape))
    if dtype == "string":
        return np.array([f"{seed}-{n}".encode() for n in range(count)], object).reshape(shape)
    if dtype == "bool":
        return ((np.arange(count) + seed) % 3 == 0).reshape(shape)
    return (np.arange(count) + seed).astype(dtype).reshape(shape)


class Pair(NamedTuple):
    x: object
    y: object


class Builder:
    """Builds the same graph in either library, from a recipe; ``blank`` gives every variable another value."""

    def __init__(self, module, variable, *, blank):
        self.module, self.variable, self.blank = module, variable, blank
        self.objects = []

    def build(self, recipe):
        kind, *details = recipe
        if kind == "shared":
            return self.objects[details[0] % len(self.objects)] if self.objects else self.build(("module", []))
        if kind == "variable":
            made = self.variable(array_of(*details[:2], details[2] + (5000 if self.blank else 0)))
            self.objects.append(made)
            return made
        if kind == "module":
            made = self.module()
            self.objects.append(made)
            for name, inner in details[0]:
                setattr(made, name, self.build(inner))
            return made
        if kind == "list":
            return [self.build(inner) for inner in details[0]]
        if kind == "dict":
            return {name: self.build(inner) for name, inner in details[0]}
        if kind == "ordered dict":
            return collections.OrderedDict((name, self.build(inner)) for name, inner in details[0])
        if kind == "named tuple":
            return Pair(*(self.build(inner) for inner in details[0]))
        # A tuple of nothing but numbers would be no node, so there is always something tracked in it.
        return (*(self.build(inner) for inner in details[0]), self.module())


def in_tensorflow(recipe, *, blank):
    def variable(array):
        return tf.Variable(array.tolist() if array.dtype == object else array, dtype=None if array.size else _tf(array))

    def _tf(array):
        return tf.string if array.dtype == object else tf.as_dtype(array.dtype)

    def shaped(array):
        if array.dtype == object:
            return tf.Variable(tf.reshape(tf.constant(array.reshape(-1).tolist(), tf.string), array.shape))
        return variable(array)

    builder = Builder(tf.Module, shaped, blank=blank)
    return tf.train.Checkpoint(**{name: builder.build(inner) for name, inner in recipe}), builder


def in_milepost(recipe, *, blank):
    builder = Builder(milepost.Module, milepost.Variable, blank=blank)
    return milepost.Checkpoint(**{name: builder.build(inner) for name, inner in recipe}), builder


def values(builder):
    return [
        each.numpy() if hasattr(each, "numpy") else None
        for each in builder.objects
        if isinstance(each, (tf.Variable, milepost.Variable))
    ]


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


slowly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100)


@slowly
@given(roots)
def test_tensorflow_restores_what_milepost_saved(tmp_path_factory, recipe):
    prefix = str(tmp_path_factory.mktemp("ours") / "ckpt")
    ours, built = in_milepost(recipe, blank=False)
    theirs, blank = in_tensorflow(recipe, blank=True)
    theirs.restore(ours.save(prefix)).assert_consumed().assert_existing_objects_matched()
    assert_same(values(built), values(blank))


@slowly
@given(roots)
def test_milepost_restores_what_tensorflow_saved(tmp_path_factory, recipe):
    prefix = str(tmp_path_factory.mktemp("theirs") / "ckpt")
    theirs, built = in_tensorflow(recipe, blank=False)
    ours, blank = in_milepost(recipe, blank=True)
    path = theirs.save(prefix)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.restore(path).assert_consumed().assert_existing_objects_matched()
    assert_same(values(blank), values(built))


@slowly
@given(roots)
def test_densely_saved_files_are_tensorflows_byte_for_byte(tmp_path_factory, recipe):
    directory = tmp_path_factory.mktemp("bytes")
    theirs, _ = in_tensorflow(recipe, blank=False)
    ours, _ = in_milepost(recipe, blank=False)
    theirs.save(str(directory / "theirs"))
    ours.save(directory / "ours", milepost.CheckpointOptions(data_alignment=1))
    their_graph, our_graph = (
        milepost.CheckpointView(directory / f"{each}-1").graph.nodes for each in ("theirs", "ours")
    )
    assert [node.children for node in our_graph] == [node.children for node in their_graph]
    assert [[(v.name, v.key) for v in node.values] for node in our_graph] == [
        [(v.name, v.key) for v in node.values] for node in their_graph
    ]
    theirs_keys, ours_keys = (dict(milepost.list_variables(directory / f"{each}-1")) for each in ("theirs", "ours"))
    assert theirs_keys == ours_keys


def test_a_whole_checkpoint_of_named_variables_is_tensorflows_byte_for_byte(tmp_path):
    """Names are the only thing that milepost does not make up as TensorFlow does, so they are given."""
    theirs = tf.train.Checkpoint(
        w=tf.Variable([[1.0, 2.0]], name="w"), l=[tf.Variable(b"text", name="t"), {"k": tf.Variable(True, name="k")}]
    )
    ours = milepost.Checkpoint(
        w=milepost.Variable([[1.0, 2.0]], name="w"),
        l=[milepost.Variable(b"text", name="t"), {"k": milepost.Variable(True, name="k")}],
    )
    theirs.save(str(tmp_path / "theirs"))
    ours.save(tmp_path / "ours", milepost.CheckpointOptions(data_alignment=1))
    for ending in (".index", ".data-00000-of-00001"):
        assert (tmp_path / f"ours-1{ending}").read_bytes() == (tmp_path / f"theirs-1{ending}").read_bytes()
