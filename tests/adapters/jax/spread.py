"""Saves arrays that eight devices hold, and restores them for other shardings: ``python -m tests.adapters.jax.spread FOLDER``."""

from __future__ import annotations

import itertools
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import milepost
import milepost.jax

SPECS = [(), ("a",), ("b",), (None, "a"), ("a", "b"), (("a", "b"),), ("b", None, "a")]
DTYPES = [np.float32, ml_dtypes.int4]
SHAPES = [(16, 24, 1000), (8, 8, 8)]
OPTIONS = {
    "plain": milepost.CheckpointOptions(),
    "async": milepost.CheckpointOptions(enable_async=True),
    "files": milepost.CheckpointOptions(experimental_sharding_callback=milepost.MaxShardSizePolicy(300_000)),
}


def main(folder):
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
    shardings = [NamedSharding(mesh, PartitionSpec(*spec)) for spec in SPECS]
    random = np.random.default_rng(0)
    for dtype, shape in itertools.product(DTYPES, SHAPES):
        plain = (random.random(shape) * 7).astype(dtype)
        arrays = [jax.device_put(plain, sharding) for sharding in shardings]
        for name, options in OPTIONS.items():
            path = milepost.jax.save(f"{folder}/{name}", arrays, options)
            for number in range(len(arrays)):
                saved = milepost.load_variable(path, f"{number}/.ATTRIBUTES/VARIABLE_VALUE")
                assert saved.tobytes() == plain.tobytes(), (name, dtype, SPECS[number])
        others = [*shardings[1:], shardings[0]]
        abstract = [jax.ShapeDtypeStruct(shape, dtype, sharding=sharding) for sharding in others]
        live = [jax.device_put(jnp.zeros(shape, dtype), sharding) for sharding in others]
        for like in (abstract, live):
            restored, status = milepost.jax.restore(path, like)
            status.assert_consumed()
            for array, sharding in zip(restored, others, strict=True):
                assert array.sharding == sharding
                assert array.dtype == dtype
                assert np.asarray(array).tobytes() == plain.tobytes(), (dtype, sharding)


if __name__ == "__main__":
    main(*sys.argv[1:])
