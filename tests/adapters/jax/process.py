"""One of two processes, each of which saves alone: ``python -m tests.adapters.jax.process NUMBER PORT FOLDER``; prints what it has restored."""

from __future__ import annotations

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import numpy as np


def main(number, port, folder):
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 2, int(number))
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import milepost.jax

    mesh = Mesh(np.array(jax.devices()), ("d",))
    whole = np.arange(8, dtype=np.float32)

    def array(spec, values):
        return jax.make_array_from_callback((8,), NamedSharding(mesh, spec), lambda index: values[index])

    alone = milepost.CheckpointOptions(process_local=True)
    try:
        milepost.jax.save(f"{folder}/spread{number}", {"x": array(PartitionSpec("d"), whole)}, alone)
    except milepost.errors.UnsupportedError as error:
        print("refused", error.key.partition("/.ATTRIBUTES")[0])
    path = milepost.jax.save(f"{folder}/replicated{number}", {"x": array(PartitionSpec(), whole)}, alone)
    for spec in (PartitionSpec(), PartitionSpec("d")):
        restored, status = milepost.jax.restore(path, {"x": array(spec, 0 * whole)}, alone)
        status.assert_consumed()
        print(*(np.asarray(shard.data).astype(int).tolist() for shard in restored["x"].addressable_shards))


if __name__ == "__main__":
    main(*sys.argv[1:])
