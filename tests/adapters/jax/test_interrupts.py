"""Ctrl-C at every line of a save of a tree: what was saved before stays, and the program goes on."""

import pytest

jnp = pytest.importorskip("jax.numpy")

import milepost.jax  # noqa: E402
from tests import interrupts  # noqa: E402


def tree(number):
    return {"w": jnp.full(20, number), "steps": [number, number + 1], "name": f"run {number}"}


def make(directory):
    milepost.jax.save(f"{directory}/old", tree(1))
    milepost.jax.save(f"{directory}/new", tree(2))
    return directory


def operate(directory):
    milepost.jax.save(f"{directory}/new", tree(3))


def check(directory):
    for name, numbers in (("old", {1}), ("new", {2, 3})):
        restored, _ = milepost.jax.restore(f"{directory}/{name}", tree(0))
        assert restored["steps"][0] in numbers
        assert restored["w"].tolist() == [float(restored["steps"][0])] * 20
    interrupts.in_other_thread(lambda: milepost.jax.save(f"{directory}/new", tree(4)))
    assert milepost.jax.restore(f"{directory}/new", tree(0))[0]["name"] == "run 4"
    assert not [name for name in interrupts.names_in(directory) if name.endswith(".tmp")]


def test_save():
    assert interrupts.found(make, operate, check, most=100) == []
