"""Arrays, keys and models over four devices, for programs of one, two or four processes: the same on each number of processes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

LARGE = (640, 480)
"""More than a megabyte of float32, so that it is read box by box."""


def meshes():
    """A line of all devices, a grid of them, the grid in another order, and a line of three of them."""
    devices = np.array(jax.devices())
    assert len(devices) == 4
    return {
        "line": Mesh(devices, ("d",)),
        "grid": Mesh(devices.reshape(2, 2), ("a", "b")),
        "crossed": Mesh(devices.reshape(2, 2).T, ("a", "b")),
        "three": Mesh(devices[:3], ("d",)),
    }


def values():
    """What is saved, by name, as arrays of NumPy."""
    random = np.random.default_rng(5)
    large = random.normal(size=LARGE).astype(np.float32)
    small = random.integers(-8, 8, (12, 8))
    return {
        "rows": large,
        "columns": large + 1,
        "boxes": large + 2,
        "half": large + 3,
        "over_three": large[:639] + 4,
        "crossed": large + 5,
        "replicated": large + 6,
        "bfloat16": large.astype(ml_dtypes.bfloat16),
        "int4": np.tile(small, (50, 200)).astype(ml_dtypes.int4),
        "small": small.astype(np.int32),
        "small_int4": small.astype(ml_dtypes.int4),
        "bool": small > 0,
        "scalar": np.float32(7.5),
        "empty": np.zeros((0, 4), np.float32),
    }


SAVED = {
    "rows": ("line", "d"),
    "columns": ("line", None, "d"),
    "boxes": ("grid", "a", "b"),
    "half": ("grid", "b"),
    "over_three": ("three", "d"),
    "crossed": ("crossed", "b", "a"),
    "replicated": ("grid",),
    "bfloat16": ("grid", ("a", "b")),
    "int4": ("crossed", "a"),
    "small": ("grid", "b", "a"),
    "small_int4": ("line", "d"),
    "bool": ("grid", "a"),
    "scalar": ("line",),
    "empty": ("line", None, "d"),
}
"""How each value is sharded when it is saved."""
OTHERS = {
    "rows": ("grid", "b", "a"),
    "columns": ("line", "d"),
    "boxes": ("grid",),
    "half": ("line", None, "d"),
    "over_three": ("grid",),
    "crossed": ("line", "d"),
    "replicated": ("crossed", "b", "a"),
    "bfloat16": ("three", None, "d"),
    "int4": ("line", None, "d"),
    "small": ("three", "d"),
    "small_int4": ("grid", "a", "b"),
    "bool": ("line", "d"),
    "scalar": ("grid",),
    "empty": ("grid", None, "b"),
}
"""How each is sharded when it is restored."""


def sharding(place):
    name, *spec = place
    return NamedSharding(meshes()[name], PartitionSpec(*spec))


def sharded(plain, place):
    """An array with these elements."""
    plain, over = np.asarray(plain), sharding(place)
    parts = [
        jax.device_put(np.array(plain[index]), device)
        for device, index in over.addressable_devices_indices_map(plain.shape).items()
    ]
    return jax.make_array_from_single_device_arrays(plain.shape, over, parts, dtype=plain.dtype)


def tree(places, plain=None):
    """The values, or zeros in their place, with these shardings."""
    return {
        name: sharded(value if plain is None else np.zeros_like(value), places[name])
        for name, value in values().items()
    }


def abstract(places):
    """Descriptions of the values with these shardings."""
    return {
        name: jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding(places[name]))
        for name, value in values().items()
    }


def is_same(array, plain):
    """Whether all devices of this process hold what they should, bit for bit."""
    plain = np.asarray(plain)
    parts = [(np.asarray(shard.data), plain[shard.index]) for shard in array.addressable_shards]
    return all(part.dtype == right.dtype and part.tobytes() == right.tobytes() for part, right in parts)


def compared(restored, places):
    """For each value, whether it is the saved one and has the sharding that was asked for."""
    return {
        name: is_same(restored[name], value) and restored[name].sharding == sharding(places[name])
        for name, value in values().items()
    }


def keys(seed, place=("line", "d")):
    """Eight typed keys over the devices."""
    words = jax.random.key_data(jax.random.split(jax.random.key(seed), 8))
    over = sharding(place)
    parts = [
        jax.random.wrap_key_data(jax.device_put(np.asarray(words)[index], device))
        for device, index in over.addressable_devices_indices_map((8,)).items()
    ]
    return jax.make_array_from_single_device_arrays((8,), over, parts)


def words(array):
    """The words of keys on the devices of this process, each with where it begins."""
    return sorted(
        (shard.index[0].indices(8)[0], np.asarray(jax.random.key_data(shard.data)).tolist())
        for shard in array.addressable_shards
    )


class Training:
    """A small model of NNX over the grid, with Adam, that makes the same steps on any number of processes."""

    def __init__(self, seed):
        import optax
        from flax import nnx

        model = nnx.Sequential(
            nnx.Linear(16, 32, rngs=nnx.Rngs(seed)), nnx.relu, nnx.Linear(32, 8, rngs=nnx.Rngs(seed + 1))
        )
        grid = meshes()["grid"]

        def spread(array):
            if len(array.sharding.device_set) > 1:
                return array  # like its parameter
            spec = {(16, 32): ("a", "b"), (32, 8): ("b",), (32,): ("b",)}.get(array.shape, ())
            return sharded(np.asarray(array), ("grid", *spec))

        nnx.update(model, jax.tree.map(spread, nnx.state(model, nnx.Param)))
        self.model = model
        self.optimizer = nnx.Optimizer(model, optax.adam(0.05), wrt=nnx.Param)
        state = nnx.state(self.optimizer, nnx.optimizer.OptState)
        nnx.update(self.optimizer, jax.tree.map(spread, state))
        self.data = NamedSharding(grid, PartitionSpec("a"))

        @nnx.jit
        def step(model, optimizer, x, y):
            loss, gradients = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
            optimizer.update(model, gradients)
            return loss

        self._step = step

    def step(self, number):
        random = np.random.default_rng(number)
        x = sharded(random.normal(size=(8, 16)).astype(np.float32), ("grid", "a"))
        y = sharded(random.normal(size=(8, 8)).astype(np.float32), ("grid", "a"))
        return float(self._step(self.model, self.optimizer, x, y).addressable_data(0))

    def state(self):
        """Checksums of what the devices of this process hold, by device and path."""
        import zlib

        from flax import nnx

        leaves = jax.tree_util.tree_leaves_with_path(nnx.state((self.model, self.optimizer)))
        return {
            f"{jax.devices().index(shard.device)} {jax.tree_util.keystr(path)}": zlib.crc32(
                np.asarray(shard.data).tobytes()
            )
            for path, leaf in leaves
            for shard in leaf.addressable_shards
        }
