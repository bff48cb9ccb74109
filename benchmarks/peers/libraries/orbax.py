"""Orbax: `StandardCheckpointer` and `CheckpointManager`, with arrays of JAX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from benchmarks.peers.peer import Late, Live, Peer, Values, distinct


class _Tree:
    """A tree of arrays, in a place where another can be put."""

    def __init__(self, arrays: Values) -> None:
        self.arrays = arrays


class Orbax(Peer):
    """Trees of arrays."""

    title = "Orbax"
    packages = ("orbax-checkpoint", "tensorstore", "jax")

    def hold(self, values: Values) -> Live:
        return _Tree({name: jax.numpy.asarray(value) for name, value in values.items()})

    def values(self, live: Live) -> Values:
        return {name: np.array(value) for name, value in live.arrays.items()}

    def write(self, live: Live, path: Path) -> None:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(path.absolute(), live.arrays, force=True)

    def read(self, live: Live, path: Path) -> None:
        with ocp.StandardCheckpointer() as checkpointer:
            live.arrays = checkpointer.restore(path.absolute(), live.arrays)

    def tell(self, live: Live, path: Path) -> str:
        self.read(live, path)
        return ""

    def save_next(self, live: Live, folder: Path, number: int) -> None:
        with self._manager(folder) as manager:
            manager.save(number, args=ocp.args.StandardSave(live.arrays))

    def restore_newest(self, live: Live, folder: Path) -> None:
        with self._manager(folder) as manager:
            live.arrays = manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(live.arrays))

    def _manager(self, folder: Path) -> Any:
        return ocp.CheckpointManager(folder.absolute(), options=ocp.CheckpointManagerOptions(max_to_keep=5))

    def unbuilt(self) -> Mapping[str, Late]:
        def make() -> Live:
            return _Tree({"bias": _random(8)})

        def call(live: Live) -> None:
            live.arrays.setdefault("kernel", _random(4, 8))

        return {"a tree without the leaf": Late(make, call)}

    shares = True

    def save_share(self, path: Path, rank: int, port: int) -> None:
        jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=rank)
        rows = distinct(1, "rows")["rows"]
        mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rows",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))
        array = jax.make_array_from_callback(rows.shape, sharding, lambda index: rows[index])
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(path.absolute(), {"rows": array})
        jax.distributed.shutdown()

    def restore_shares(self, path: Path) -> Any:
        with ocp.StandardCheckpointer() as checkpointer:
            return np.array(checkpointer.restore(path.absolute(), {"rows": jax.numpy.zeros((128, 128))})["rows"])


def _random(*shape: int) -> Any:
    return jax.numpy.asarray(np.random.default_rng().normal(size=shape))
