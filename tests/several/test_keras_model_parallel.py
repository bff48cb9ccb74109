"""Keras on JAX with a model that is divided among the devices of two processes, restored on other meshes and by one process."""

import pytest

from tests.several.programs import JAX, run, same

pytest.importorskip("jax")
pytest.importorskip("keras")

HEAD = """
import zlib
import keras
import milepost.keras
from jax.sharding import NamedSharding, PartitionSpec
together = CheckpointOptions(**options)

def divide(shape):
    "Divides the model among all devices."
    devices = np.array([f"cpu:{device.id}" for device in jax.devices()])
    mesh = keras.distribution.DeviceMesh(shape, ("batch", "model"), devices)
    layout = keras.distribution.LayoutMap(mesh)
    layout[".*wide.*kernel"] = (None, "model")
    layout[".*wide.*bias"] = ("model",)
    layout[".*head.*kernel"] = ("model", None)
    keras.distribution.set_distribution(
        keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch", auto_shard_dataset=False)
    )

def build(seed):
    keras.utils.set_random_seed(seed)
    wide = keras.layers.Dense(700, activation="relu", name="wide")
    model = keras.Sequential([keras.Input((600,)), wide, keras.layers.Dropout(0.5), keras.layers.Dense(4, name="head")])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    return model

x = np.random.default_rng(0).normal(size=(16, 600)).astype(np.float32)
y = np.random.default_rng(1).normal(size=(16, 4)).astype(np.float32)

def trained(model):
    losses = [float(model.train_on_batch(x, y)) for _ in range(2)]
    model.jax_state_sync()
    return losses

def whole(array):
    if not array.is_fully_addressable:
        replicated = NamedSharding(array.sharding.mesh, PartitionSpec())
        array = jax.jit(lambda each: each, out_shardings=replicated)(array).addressable_data(0)
    return zlib.crc32(np.asarray(array).tobytes())

def state(model):
    return [whole(variable.value) for variable in [*model.variables, *model.optimizer.variables]]
"""
SAVES = (
    HEAD
    + """
divide((1, 4))
model = build(1)
results["rows of a device"] = [shard.data.shape[1] for shard in model.variables[0].value.addressable_shards]
trained(model)
Checkpoint(model=model).write(f"{directory}/ckpt", together)
results["state"] = state(model)
results["losses"] = trained(model)
late = build(2)  # its optimizer makes its variables later
Checkpoint(model=late).read(f"{directory}/ckpt", together)
results["late losses"] = trained(late)

# fit(), interrupted in the third of four epochs.
class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations == 11:
            raise KeyboardInterrupt

def fit(seed, name, *others, order=7):
    model = build(seed)
    checkpoints = milepost.keras.CheckpointCallback(f"{directory}/{name}", every_steps=1, options=together)
    data = checkpoints.resumable(x, y, batch_size=4, seed=order)
    model.fit(data, epochs=4, verbose=0, callbacks=[checkpoints, *others])
    return state(model)

results["undisturbed"] = fit(3, "undisturbed")
try:
    fit(3, "disturbed", Stop())
except KeyboardInterrupt:
    results["resumed"] = fit(4, "disturbed")
results["drawn"] = fit(5, "drawn", order=None)
"""
)
RESTORES = (
    HEAD
    + """
if SHAPE:
    divide(SHAPE)
model = build(2)
Checkpoint(model=model).read(f"{directory}/ckpt", together).assert_existing_objects_matched()
model.optimizer.build(model.trainable_variables)
Checkpoint(model=model).read(f"{directory}/ckpt", together).assert_consumed()
results["state"] = state(model)
results["losses"] = trained(model)
"""
)


def environment(devices):
    return {"KERAS_BACKEND": "jax", "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("divided")


@pytest.fixture(scope="module")
def saved(directory):
    """What each of two processes of two devices has saved and found."""
    return run(SAVES, 2, directory, JAX, environment=environment(2))


def test_the_model_is_divided(saved):
    assert [each["rows of a device"] for each in saved] == [[175, 175]] * 2


def test_an_optimizer_that_makes_its_variables_later_gets_them(saved):
    for each in saved:
        assert each["late losses"] == each["losses"]


def test_all_processes_shuffle_alike_where_the_program_gives_no_seed(saved):
    """Otherwise the first save is refused, because the seeds differ, and the program ends with that error."""
    assert same([len(each["drawn"]) for each in saved])


def test_fit_goes_on_bit_for_bit(saved):
    assert same([each["resumed"] for each in saved]) == same([each["undisturbed"] for each in saved])


@pytest.mark.parametrize(
    ("processes", "shape", "devices"),
    [(2, (2, 2), 2), (1, (1, 2), 2), (1, None, 1)],
    ids=["another mesh", "one process of two devices", "one process without a mesh"],
)
def test_others_restore_it(saved, directory, processes, shape, devices):
    body = RESTORES.replace("SHAPE", repr(shape))
    restored = run(body, processes, directory, JAX, environment=environment(devices))
    assert same([each["state"] for each in restored]) == same([each["state"] for each in saved])
    if processes == 1:  # where the batch is divided too, every process trains on a batch of its own
        assert restored[0]["losses"] == pytest.approx(saved[0]["losses"], rel=1e-5)
