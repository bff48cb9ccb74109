"""Arrays and training on a GPU with JAX: the same bits, on the same device. Every test here needs a GPU that JAX sees."""

import pytest

pytest.importorskip("jax", reason="JAX is not installed")
pytest.importorskip("optax", reason="Optax is not installed")
import jax
import jax.numpy as jnp
import optax

import milepost.jax

try:
    GPU = jax.devices("gpu")[0]
except RuntimeError:
    pytest.skip("this machine has no GPU that JAX sees", allow_module_level=True)


OPTIMIZER = optax.adamw(0.01)


def begin(seed):
    key = jax.random.key(seed)
    parameters = {"w": jax.random.normal(key, (8, 8)), "b": jnp.zeros(8)}
    return jax.device_put({"parameters": parameters, "state": OPTIMIZER.init(parameters), "key": key}, GPU)


@jax.jit
def step(tree):
    key, draw = jax.random.split(tree["key"])
    x = jax.random.normal(draw, (16, 8))
    loss, gradients = jax.value_and_grad(lambda p: jnp.square(x @ p["w"] + p["b"]).mean())(tree["parameters"])
    updates, state = OPTIMIZER.update(gradients, tree["state"], tree["parameters"])
    return {"parameters": optax.apply_updates(tree["parameters"], updates), "state": state, "key": key}, loss


def train(tree, steps):
    losses = []
    for _ in range(steps):
        tree, loss = step(tree)
        losses.append(float(loss))
    return tree, losses


def test_a_run_goes_on_with_the_same_bits(tmp_path):
    tree, _ = train(begin(0), 5)
    path = milepost.jax.save(tmp_path / "ckpt", tree)
    _, expected = train(tree, 5)
    restored, status = milepost.jax.restore(path, begin(1))
    status.assert_consumed()
    assert train(restored, 5)[1] == expected


def test_arrays_come_back_to_their_device(tmp_path):
    path = milepost.jax.save(tmp_path / "ckpt", {"x": jax.device_put(jnp.arange(6.0), GPU)})
    restored, _ = milepost.jax.restore(path, {"x": jax.device_put(jnp.zeros(6), GPU)})
    assert restored["x"].devices() == {GPU}
    assert restored["x"].tolist() == [0, 1, 2, 3, 4, 5]


def test_an_abstract_array_is_made_on_the_device_of_its_sharding(tmp_path):
    path = milepost.jax.save(tmp_path / "ckpt", {"x": jax.device_put(jnp.arange(6.0), GPU)})
    abstract = jax.ShapeDtypeStruct((6,), jnp.float32, sharding=jax.sharding.SingleDeviceSharding(GPU))
    restored, _ = milepost.jax.restore(path, {"x": abstract})
    assert restored["x"].devices() == {GPU}


def test_an_array_in_pinned_host_memory_comes_back_there(tmp_path):
    sharding = jax.sharding.SingleDeviceSharding(GPU, memory_kind="pinned_host")
    path = milepost.jax.save(tmp_path / "ckpt", {"x": jax.device_put(jnp.arange(6.0), sharding)})
    restored, _ = milepost.jax.restore(path, {"x": jax.device_put(jnp.zeros(6), sharding)})
    assert restored["x"].sharding.memory_kind == "pinned_host"
