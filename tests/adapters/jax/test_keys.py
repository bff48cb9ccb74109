"""Typed keys of JAX's random number generators."""

import numpy as np
import pytest

import milepost

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

import milepost.jax
from tests.adapters.jax.restoring import restored


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
@pytest.mark.parametrize("abstract", [False, True])
def test_keys_of_every_generator_round_trip(path, impl, shape, abstract):
    keys = jax.random.split(jax.random.key(7, impl=impl), shape) if shape else jax.random.key(7, impl=impl)
    milepost.Checkpoint(key=keys).write(path)
    live = jax.random.split(jax.random.key(0, impl=impl), shape) if shape else jax.random.key(0, impl=impl)
    got = restored(path, key=jax.eval_shape(lambda: live) if abstract else live).key
    assert got.shape == shape
    assert str(jax.random.key_impl(got)) == impl
    assert (jax.random.key_data(got) == jax.random.key_data(keys)).all()


def test_numbers_go_on_where_they_stopped(path):
    key = jax.random.key(3)
    for _ in range(3):
        key, _ = jax.random.split(key)
    milepost.Checkpoint(key=key).write(path)
    got = restored(path, key=jax.random.key(0)).key
    assert (jax.random.normal(got, 4) == jax.random.normal(key, 4)).all()


def test_a_key_for_another_generator_is_refused_and_nothing_changes(path):
    milepost.Checkpoint(key=jax.random.key(7, impl="rbg"), x=jnp.ones(2)).write(path)
    fresh = milepost.Checkpoint(key=jax.random.key(0, impl="unsafe_rbg"), x=jnp.zeros(2))
    with pytest.raises(milepost.MismatchError, match=r"(?s)another generator.*unsafe_rbg.*found: rbg.*impl='rbg'"):
        fresh.read(path)
    assert fresh.x.tolist() == [0, 0]


@pytest.mark.parametrize(("saved", "live"), [("threefry2x32", "rbg"), ("rbg", "threefry2x32"), ("unsafe_rbg", "rbg")])
@pytest.mark.parametrize("abstract", [False, True])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_generators_are_named_also_where_their_keys_have_other_shapes(path, saved, live, abstract, shape):
    def make(impl):
        key = jax.random.key(7, impl=impl)
        return jax.random.split(key, shape) if shape else key

    milepost.jax.save(path, {"x": jnp.ones(2), "key": make(saved)})
    key = jax.eval_shape(lambda: make(live)) if abstract else make(live)
    with pytest.raises(milepost.MismatchError, match=f"expected: {live}, .*\n.*found: {saved} in") as caught:
        milepost.jax.restore(path, {"x": jnp.zeros(2), "key": key})
    assert caught.value.key.startswith("key")
    assert caught.value.remedy == f"make the live key with jax.random.key(seed, impl={saved!r})"


def test_raw_words_of_another_generator_are_refused(path):
    milepost.jax.save(path, {"key": jax.random.PRNGKey(7)})
    with pytest.raises(milepost.MismatchError, match=r"(?s)expected: 4 words a key, as rbg .*found: 2 words"):
        milepost.jax.restore(path, {"key": jax.random.key(0, impl="rbg")})


def test_more_keys_than_were_saved_are_of_another_shape(path):
    milepost.jax.save(path, {"key": jax.random.split(jax.random.key(0), 3)})
    with pytest.raises(milepost.MismatchError, match=r"\[3,2\]"):
        milepost.jax.restore(path, {"key": jax.random.split(jax.random.key(0), 4)})


def test_a_file_says_words_and_generator(path):
    milepost.Checkpoint(dropout=jax.random.key(7)).write(path)
    assert milepost.list_variables(path)[1:] == [
        ("dropout/.ATTRIBUTES/VARIABLE_VALUE", [2]),
        ("dropout/.ATTRIBUTES/impl", []),
    ]
    assert milepost.load_variable(path, "dropout/.ATTRIBUTES/impl") == b"threefry2x32"


def test_a_raw_key_fits_a_typed_one_and_the_missing_name_is_reported(path):
    milepost.Checkpoint(key=jax.random.PRNGKey(7)).write(path)
    checkpoint = milepost.Checkpoint(key=jax.random.key(0))
    status = checkpoint.read(path)
    assert jax.random.key_data(checkpoint.key).tolist() == [0, 7]
    with pytest.raises(milepost.UnmatchedError, match="impl"):
        status.assert_consumed()


def test_a_tree_with_a_key_keeps_everything_else(tmp_path):
    key = jax.random.key(3)
    tree = {
        "step": 7,
        "name": "run",
        "rates": (0.1, None),
        "l": [1, {2}],
        "in": {"key": key, "n": [3]},
        "w": np.ones(2),
    }
    found = milepost.load(milepost.save(tmp_path / "ckpt", tree))
    assert jax.random.key_data(found["in"].pop("key")).tolist() == jax.random.key_data(tree["in"].pop("key")).tolist()
    assert found.pop("w").tolist() == tree.pop("w").tolist()
    assert found == tree


def test_a_list_with_a_key_keeps_everything_else(tmp_path):
    key = jax.random.key(3)
    found = milepost.load(milepost.save(tmp_path / "ckpt", [key, 1, "text"]))
    assert found[0] == key
    assert found[1:] == [1, "text"]
