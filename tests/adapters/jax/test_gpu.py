"""Arrays and training on a GPU with JAX: the same bits, on the same device. Every test here needs a GPU that JAX sees, and
CUDA_VISIBLE_DEVICES=0."""

import pytest

pytest.importorskip("jax", reason="JAX is not installed")
pytest.importorskip("optax", reason="Optax is not installed")
import jax
import jax.numpy as jnp
import numpy as np
import optax

import milepost.jax
from milepost.adapters.jax import host_memory

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


LARGE = (1024, 9 << 10)
"""The shape of an array that is read in several parts, 36 MiB of float32."""
ASYNC = milepost.CheckpointOptions(enable_async=True)


def on_gpu(array):
    return jax.device_put(array, GPU)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int4", "bool", "float8_e4m3fn", "complex64"])
@pytest.mark.parametrize("shape", [(), (5,), (300, 400), LARGE])
def test_arrays_of_any_type_and_shape_are_saved_and_restored(tmp_path, dtype, shape):
    array = on_gpu((jnp.arange(np.prod(shape, dtype=int)).reshape(shape) % 7).astype(dtype))
    manager = milepost.jax.TreeManager(tmp_path / "run", options=ASYNC)
    manager.save({"x": array})
    manager.sync()
    paths = [milepost.jax.save(tmp_path / "ckpt", {"x": array}), manager.latest_checkpoint]
    for path in paths:
        restored, status = milepost.jax.restore(path, {"x": jnp.zeros_like(array)})
        status.assert_consumed()
        assert restored["x"].devices() == {GPU}
        assert (restored["x"] == array).all()


@pytest.mark.parametrize("with_pinned_memory", [True, False])
def test_a_step_to_which_the_arrays_are_donated_does_not_change_an_asynchronous_save(
    tmp_path, monkeypatch, with_pinned_memory
):
    if not with_pinned_memory:
        monkeypatch.setattr("milepost.adapters.jax.host_memory._PINNED", "none")
    step = jax.jit(lambda tree: jax.tree.map(lambda each: each + 1, tree), donate_argnums=0)
    tree = on_gpu({"large": jnp.zeros(LARGE), "small": jnp.zeros(3), "number": jnp.zeros(())})
    manager = milepost.jax.TreeManager(tmp_path, max_to_keep=None, options=ASYNC)
    for _ in range(5):
        manager.save(tree)
        for _ in range(3):
            tree = step(tree)
    manager.sync()
    for number, path in enumerate(manager.checkpoints):
        for name in ("large", "small", "number"):
            assert np.unique(milepost.load_variable(path, f"{name}/.ATTRIBUTES/VARIABLE_VALUE")) == [3 * number]


def test_an_asynchronous_save_has_the_machine_copy_by_itself(tmp_path, monkeypatch):
    copied = []

    def counted(arrays):
        copies = copied_to_host(arrays)
        copied.append([each.sharding.memory_kind for each in copies])
        return copies

    copied_to_host = host_memory.copied_to_host
    monkeypatch.setattr("milepost.adapters.jax.pieces.copied_to_host", counted)
    manager = milepost.jax.TreeManager(tmp_path, options=ASYNC)
    manager.save(on_gpu({"x": jnp.zeros(LARGE), "y": jnp.zeros(3)}))
    manager.sync()
    assert copied == [["pinned_host", "pinned_host"]]
