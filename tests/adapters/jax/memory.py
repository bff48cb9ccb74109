"""Saves or restores 128 MiB on eight devices: ``python -m tests.adapters.jax.memory PREFIX save|async|restore|abstract AXIS``.

Prints the MiB that it took, and how many arrays keep a copy of what they hold.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import milepost
import milepost.jax

ARRAYS, SHAPE = 2, (1024, 16384)
STATE = ARRAYS * SHAPE[0] * SHAPE[1] * 4 / 2**20


def _mebibytes(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def _shard(number, shape):
    return jax.device_put(np.full(shape, number, np.float32), jax.devices()[number])


def _spread(axis):
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("d",)), PartitionSpec(*[None] * axis, "d"))
    shape = sharding.shard_shape(SHAPE)
    pieces = [[_shard(device, shape) for device in range(8)] for _ in range(ARRAYS)]
    return [jax.make_array_from_single_device_arrays(SHAPE, sharding, each) for each in pieces]


def main(prefix, how, axis):
    state = jax.block_until_ready(_spread(int(axis)))
    if how == "abstract":
        state = [jax.ShapeDtypeStruct(SHAPE, jnp.float32, sharding=each.sharding) for each in state]
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = _mebibytes("VmRSS")
    if how in ("save", "async"):
        milepost.jax.save(prefix, state, milepost.CheckpointOptions(enable_async=how == "async"))
        kept = state
    else:
        kept = jax.block_until_ready(milepost.jax.restore(prefix, state)[0])
    taken = _mebibytes("VmHWM") - before
    print(taken, sum(each._npy_value is not None for each in kept))


if __name__ == "__main__":
    main(*sys.argv[1:])
