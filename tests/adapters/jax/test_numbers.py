"""Numbers of Python where the live tree has arrays without dimensions, and the reverse."""

import numpy as np
import pytest

import milepost

pytest.importorskip("jax")
import jax
import jax.numpy as jnp

import milepost.jax


def carried(path, saved, live, **arguments):
    """A number of a tree that is saved and restored beside an array."""
    milepost.jax.save(path, {"w": jnp.ones(2), "x": saved})
    tree, status = milepost.jax.restore(path, {"w": jnp.zeros(2), "x": live}, **arguments)
    return tree["x"], status


@pytest.mark.parametrize("saved", [0.1, np.float64(0.1)], ids=["Python", "NumPy"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_fraction_is_rounded_to_the_live_array_as_jax_rounds_it(path, saved, dtype):
    found, status = carried(path, saved, jnp.zeros((), dtype))
    status.assert_consumed().assert_existing_objects_matched()
    assert found.dtype == dtype
    assert found == jnp.asarray(saved, dtype)


def test_a_complex_number_is_rounded_too(path):
    assert carried(path, 0.1j, jnp.zeros((), "complex64"))[0] == jnp.complex64(0.1j)


def test_an_array_without_dimensions_becomes_the_number_that_it_holds(path):
    assert carried(path, jnp.bfloat16(0.1), 0.5)[0] == float(jnp.bfloat16(0.1))


def test_a_learning_rate_that_was_set_by_hand_goes_on_with_the_same_bits(path):
    optax = pytest.importorskip("optax")
    transformation = optax.inject_hyperparams(optax.adam)(learning_rate=1e-2)

    def begin():
        params = {"w": jnp.ones(4)}
        return {"params": params, "state": transformation.init(params)}

    def step(tree):
        updates, state = transformation.update({"w": 2 * tree["params"]["w"]}, tree["state"])
        return {"params": optax.apply_updates(tree["params"], updates), "state": state}

    tree = step(begin())
    tree["state"].hyperparams["learning_rate"] = 1e-4
    milepost.jax.save(path, tree)
    resumed, _ = milepost.jax.restore(path, begin())
    same = jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b)), step(tree), step(resumed))
    assert all(jax.tree.leaves(same))


@pytest.mark.parametrize(
    ("saved", "live"), [(1e300, jnp.float32(0)), (2**24 + 1, jnp.float32(0)), (2**40, jnp.int32(0))], ids=repr
)
def test_a_number_that_the_live_array_cannot_hold_is_refused(path, saved, live):
    with pytest.raises(milepost.MismatchError, match="does not fit"):
        carried(path, saved, live)


def test_an_array_of_another_element_type_is_not_rounded(path):
    with pytest.raises(milepost.MismatchError, match="does not fit"):
        carried(path, np.array(0.1), jnp.float32(0))


@pytest.mark.parametrize(
    ("saved", "live"),
    [
        (jnp.float32(0.1), jnp.bfloat16(0)),
        (np.array(0.1), jnp.float32(0)),
        (np.array(0.1), np.zeros((), np.float32)),
        (0.1, jnp.float32(0)),
    ],
    ids=["float32 to bfloat16", "float64 to float32", "arrays of NumPy", "Python"],
)
def test_cast_converts_what_has_no_dimensions_and_says_the_loss(path, saved, live):
    found, status = carried(path, saved, live, cast=True)
    assert found == np.asarray(saved).astype(live.dtype)
    (entry,) = [entry for entry in status.report() if entry.key.startswith("x/")]
    assert entry.note.startswith("converted; the largest relative error is ")


def test_cast_leaves_integers_to_the_number_that_holds_more_of_them(path):
    assert carried(path, np.uint64(2**63 + 3), 0, cast=True)[0] == 2**63 + 3
