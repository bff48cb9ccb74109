"""Keras on JAX, data-parallel over two processes."""

import pytest

from tests.several.programs import JAX, run

pytest.importorskip("jax")
pytest.importorskip("keras")

HEAD = """
import keras
together = CheckpointOptions(**options)
devices = [f"cpu:{device.id}" for device in jax.devices()]

keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False))

def build():
    keras.utils.set_random_seed(1)
    wide = keras.layers.Dense(700, activation="relu", name="wide")
    model = keras.Sequential([keras.Input((600,)), wide, keras.layers.Dropout(0.5), keras.layers.Dense(4, name="head")])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    return model

x = np.random.default_rng(0).normal(size=(16, 600)).astype(np.float32)
y = np.random.default_rng(1).normal(size=(16, 4)).astype(np.float32)
half = slice(8 * rank, 8 * rank + 8) if size == 2 else slice(0, 16)

def trained(model):
    losses = [float(model.train_on_batch(x[half], y[half])) for _ in range(2)]
    model.jax_state_sync()
    return losses

def state(model):
    import zlib
    variables = [*model.variables, *model.optimizer.variables]
    return {
        f"{jax.devices().index(shard.device)} {number}": zlib.crc32(np.asarray(shard.data).tobytes())
        for number, variable in enumerate(variables)
        for shard in variable.value.addressable_shards
    }
"""
SAVES = """
model = build()
results["losses"] = trained(model)
Checkpoint(model=model).write(f"{directory}/ckpt", together)
results["state"] = state(model)
results["losses"] += trained(model)
fresh = build()
fresh.optimizer.build(fresh.trainable_variables)
trained(fresh)
Checkpoint(model=fresh).read(f"{directory}/ckpt", together).assert_consumed()
results["restored"] = state(fresh)
results["resumed losses"] = trained(fresh)
late = build()  # its optimizer makes its variables later
Checkpoint(model=late).read(f"{directory}/ckpt", together)
results["late losses"] = trained(late)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    directory = tmp_path_factory.mktemp("keras")
    environment = {"KERAS_BACKEND": "jax", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    return run(HEAD + SAVES, 2, directory, JAX, environment=environment)


def test_variables_come_back_bit_for_bit(ran):
    for each in ran:
        assert each["restored"] == each["state"]


@pytest.mark.parametrize("model", ["resumed", "late"])
def test_a_training_goes_on_with_the_same_losses(ran, model):
    for each in ran:
        assert each[f"{model} losses"] == each["losses"][2:]
