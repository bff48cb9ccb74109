"""Leaves of trees that are no arrays: kept, or refused."""

import datetime
from collections import defaultdict
from functools import partial

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

import milepost
import milepost.jax


@pytest.mark.parametrize("text", ["hello", "", "größer", b"\xff\x00", b""])
def test_text_comes_back_with_its_type(tmp_path, text):
    path = milepost.jax.save(tmp_path / "ckpt", {"text": text, "array": jnp.ones(1)})
    tree, status = milepost.jax.restore(path, {"text": type(text)(), "array": jnp.zeros(1)})
    status.assert_consumed()
    assert tree["text"] == text
    assert type(tree["text"]) is type(text)


def test_text_in_a_tree_of_a_checkpoint_comes_back(tmp_path):
    path = milepost.Checkpoint(state={"name": "a", "w": jnp.ones(1)}).write(tmp_path / "ckpt")
    live = milepost.Checkpoint(state={"name": "b", "w": jnp.zeros(1)})
    live.read(path).assert_consumed()
    assert live.state["name"] == "a"


def test_bytes_that_are_no_text_are_refused_where_text_is_held(tmp_path):
    path = milepost.jax.save(tmp_path / "ckpt", {"text": b"\xff", "array": jnp.ones(1)})
    with pytest.raises(milepost.MismatchError, match="not UTF-8 text"):
        milepost.jax.restore(path, {"text": "", "array": jnp.zeros(1)})


@pytest.mark.parametrize("saved", [{}, {"text": None}])
@pytest.mark.parametrize("live", ["here", b"here"])
@pytest.mark.parametrize("in_checkpoint", [False, True])
def test_text_that_was_not_saved_is_missing(tmp_path, saved, live, in_checkpoint):
    path = str(tmp_path / "ckpt")
    if in_checkpoint:
        milepost.Checkpoint(tree={"array": jnp.ones(1), **saved}).write(path)
        status = milepost.Checkpoint(tree={"array": jnp.zeros(1), "text": live}).read(path)
    else:
        milepost.jax.save(path, {"array": jnp.ones(1), **saved})
        _, status = milepost.jax.restore(path, {"array": jnp.zeros(1), "text": live})
    status.expect_partial()
    with pytest.raises(milepost.errors.UnmatchedError, match=r"key: (tree/)?text/"):
        status.assert_consumed()


@pytest.mark.parametrize("make", [lambda w: partial(max, w), lambda w: partial(max, key=[w])])
def test_arrays_in_a_partial_are_named_and_its_remedy_saves_them(tmp_path, make):
    tree = {"w": jnp.ones(1), "call": make(jnp.ones(2))}
    with pytest.warns(milepost.UntrackedWarning, match=r"(?s)call.*that a partial holds.*jax.tree_util.Partial"):
        milepost.jax.save(tmp_path / "ckpt", tree)
    call = jax.tree_util.Partial(tree["call"].func, *tree["call"].args, **tree["call"].keywords)
    path = milepost.jax.save(tmp_path / "ckpt", {**tree, "call": call})
    live = {"w": jnp.zeros(1), "call": jax.tree.map(jnp.zeros_like, call)}
    restored, status = milepost.jax.restore(path, live)
    status.assert_consumed()
    assert jax.tree.leaves(restored["call"])[0].tolist() == [1, 1]


@pytest.mark.parametrize("call", [partial(jax.nn.leaky_relu, negative_slope=0.1), partial(max)])
def test_a_partial_of_settings_is_left_out(tmp_path, recwarn, call):
    milepost.jax.save(tmp_path / "ckpt", {"w": jnp.ones(1), "call": call})
    assert not recwarn.list


def test_the_structure_of_a_tree_is_no_data(tmp_path):
    from jax.example_libraries.optimizers import adam

    init, update, params = adam(0.1)
    state = update(0, {"w": jnp.ones(2)}, init({"w": jnp.ones(2)}))
    path = milepost.jax.save(tmp_path / "ckpt", {"state": state})
    restored, status = milepost.jax.restore(path, {"state": init({"w": jnp.zeros(2)})})
    status.assert_consumed()
    assert params(restored["state"])["w"].tolist() == params(state)["w"].tolist()
    assert jax.tree.structure(restored["state"]) == jax.tree.structure(state)


REFUSED = {
    "date": datetime.date(2020, 1, 1),
    "record of objects": np.zeros(2, [("a", object)]),
    "object": object(),
    "set": {1, 2},
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("nested", [False, True])
def test_a_leaf_that_cannot_be_stored_is_refused_by_its_path(tmp_path, kind, nested):
    tree = {"below": [REFUSED[kind]]} if nested else {"leaf": REFUSED[kind]}
    with pytest.raises(milepost.UntrackableError, match="would not be saved") as caught:
        milepost.jax.save(tmp_path / "ckpt", {**tree, "array": jnp.ones(1)})
    assert caught.value.key == ("below/0" if nested else "leaf")
    assert not list(tmp_path.iterdir())


def test_a_leaf_that_may_be_left_out_is_left_out(tmp_path):
    options = milepost.CheckpointOptions(allow_unsaved=["date"])
    path = milepost.jax.save(tmp_path / "ckpt", {"date": REFUSED["date"], "array": jnp.ones(1)}, options)
    assert [key for key, _ in milepost.list_variables(path)][1:] == ["array/.ATTRIBUTES/VARIABLE_VALUE"]


@pytest.mark.parametrize("function", [jnp.tanh, jax.nn.relu, max, float, np.add, jnp.float32])
def test_functions_are_left_alone(tmp_path, function):
    path = milepost.jax.save(tmp_path / "ckpt", {"activation": function, "array": jnp.ones(1)})
    tree, status = milepost.jax.restore(path, {"activation": function, "array": jnp.zeros(1)})
    status.assert_consumed()
    assert tree["activation"] is function


@pytest.mark.parametrize("held", [defaultdict(list), (defaultdict(list),)], ids=["itself", "in a tuple"])
def test_a_defaultdict_that_is_still_empty_is_refused_in_a_checkpoint(tmp_path, held):
    checkpoint = milepost.Checkpoint(array=jnp.ones(1))
    checkpoint.held = held
    with pytest.raises(milepost.UntrackableError, match="defaultdict"):
        checkpoint.write(tmp_path / "ckpt")


def test_an_array_that_has_no_value_is_refused_with_the_advice_to_put_none_in_its_place(path):
    gradient = jax.grad(lambda x: x[0] * 2.0, allow_int=True)((1.0, 3))
    with pytest.raises(milepost.UntrackableError) as caught:
        milepost.jax.save(path, gradient)
    assert caught.value.remedy.startswith("put None in its place")
    milepost.jax.save(path, (gradient[0], None))
