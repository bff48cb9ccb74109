"""Mutable arrays of JAX take their values where they are."""

import pytest

import milepost

jax = pytest.importorskip("jax")
jnp = jax.numpy
new_ref = pytest.importorskip("milepost.adapters.jax.moved").new_ref


@pytest.mark.parametrize("held", [jnp.arange(3.0), jnp.ones((2, 2), "bfloat16"), jax.random.key(7)], ids=str)
def test_a_mutable_array_is_restored_in_place(tmp_path, held):
    path = milepost.Checkpoint(ref=new_ref(held)).write(tmp_path / "ckpt")
    ref = new_ref(jax.random.key(0) if held.dtype == jax.random.key(0).dtype else held * 0)
    milepost.Checkpoint(ref=ref).read(path).assert_consumed()
    assert bool((ref[...] == held).all())


def test_it_keeps_its_identity_in_a_tree(tmp_path):
    path = milepost.Checkpoint(tree={"x": jnp.ones(2), "ref": new_ref(jnp.ones(3))}).write(tmp_path / "ckpt")
    ref = new_ref(jnp.zeros(3))
    checkpoint = milepost.Checkpoint(tree={"x": jnp.zeros(2), "ref": ref})
    checkpoint.read(path).assert_consumed()
    assert checkpoint.tree["ref"] is ref
    assert ref[...].tolist() == [1, 1, 1]
