"""Trees of JAX whose values are laid out otherwise: parameters, and the moments of Optax, which are values of their own."""

import numpy as np
import pytest

from milepost.layouts import Concatenate, Stack, inverse
from tests.engine.layouts.files import flat, saved
from tests.engine.test_linear import calls_of

STEPS = [
    Concatenate([f"**/layers/*/{name}" for name in "qkv"], "**/layers/*/qkv", axis=1),
    Stack("**/layers/#/qkv/kernel", "**/layers/kernels"),
]
"""From layers with q, k and v apart to layers that `jax.lax.scan` goes over."""


def test_parameters_and_moments_are_stacked_for_a_scan_and_come_apart_again(tmp_path):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    optax = pytest.importorskip("optax", reason="Optax is not installed")
    import milepost.jax

    def apart(seed):
        keys = iter(jax.random.split(jax.random.key(seed), 6))
        layer = {name: {"kernel": None} for name in "qkv"}
        return {
            "layers": [
                jax.tree.map(lambda _: jax.random.normal(next(keys), (4, 3)), layer, is_leaf=lambda x: x is None)
                for _ in range(2)
            ]
        }

    transform = optax.adamw(0.01)
    params = apart(0)
    _, state = transform.update(apart(1), transform.init(params), params)
    path = milepost.jax.save(tmp_path / "apart", {"params": params, "opt_state": state})
    scanned = {"layers": {"kernels": jax.numpy.zeros((2, 4, 9))}}
    target = {"params": scanned, "opt_state": transform.init(scanned)}
    made, status = milepost.jax.restore(path, target, convert=STEPS)
    status.assert_consumed().assert_existing_objects_matched()
    for tree, its_tree in (
        (params, made["params"]),
        (state[0].mu, made["opt_state"][0].mu),
        (state[0].nu, made["opt_state"][0].nu),
    ):
        expected = [np.concatenate([layer[name]["kernel"] for name in "qkv"], 1) for layer in tree["layers"]]
        np.testing.assert_array_equal(its_tree["layers"]["kernels"], np.stack(expected))
    back = milepost.jax.save(tmp_path / "stacked", made)
    target = {"params": apart(2), "opt_state": transform.init(params)}
    again, status = milepost.jax.restore(back, target, convert=inverse(STEPS))
    status.assert_consumed().assert_existing_objects_matched()
    assert all(map(np.array_equal, jax.tree.leaves(again), jax.tree.leaves({"params": params, "opt_state": state})))


def test_work_grows_no_faster_than_the_file():
    def load_of(count):
        path, options = saved({f"layers/{number}/{name}/w": np.zeros(2) for number in range(count) for name in "qk"})
        steps = [Concatenate(["layers/*/q", "layers/*/k"], "layers/*/qk")]
        return lambda: flat(path, options, convert=steps)

    few, many = load_of(50), load_of(200)
    few()  # imports
    assert calls_of(many) < 4.5 * calls_of(few)
