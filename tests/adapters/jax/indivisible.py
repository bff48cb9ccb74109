"""Restores into a sharding that does not divide the shape; prints the error, and whether anything was changed."""

from __future__ import annotations

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import milepost


def main(prefix):
    path = milepost.Checkpoint(a=milepost.Variable(1.0), tree={"b": jnp.ones(10)}).write(prefix)
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("d",)), PartitionSpec("d"))
    abstract = jax.ShapeDtypeStruct((10,), jnp.float32, sharding=sharding)
    live = milepost.Checkpoint(a=milepost.Variable(0.0), tree={"b": abstract})
    try:
        live.read(path)
    except milepost.errors.UnsupportedError as error:
        print(error.key, float(live.a))


if __name__ == "__main__":
    main(*sys.argv[1:])
