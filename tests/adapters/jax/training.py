"""Trains with dropout and shuffled batches, in plain JAX and Optax, and saves after every step.

    python -m tests.adapters.jax.training directory steps [--kill] [--trees]

``--kill`` ends the process by SIGKILL right after the last step; ``--trees`` uses `milepost.jax`. Prints the last state.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import milepost
import milepost.jax

DATA = np.sin(np.arange(48.0, dtype=np.float32)).reshape(12, 4)
BATCH = 4
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.05))


def initial(seed: int = 0) -> dict[str, Any]:
    """Everything there is to know between two steps."""
    params = {"hidden": jax.random.normal(jax.random.key(seed), (4, 8)), "out": jnp.zeros((8, 4), jnp.bfloat16)}
    return {
        "params": params,
        "opt_state": OPTIMIZER.init(params),
        "dropout": jax.random.key(seed + 1),
        "order": jax.random.permutation(jax.random.key(seed + 2), len(DATA)),
        "shuffle": jax.random.key(seed + 3),
        "step": 0,
        "average": params,
    }


def _loss(params: Any, batch: Any, key: Any) -> Any:
    hidden = jnp.tanh(batch @ params["hidden"])
    hidden = jnp.where(jax.random.bernoulli(key, 0.5, hidden.shape), hidden * 2, 0)
    return jnp.mean(jnp.square(hidden @ params["out"].astype(jnp.float32) - batch))


@jax.jit  # type: ignore[untyped-decorator]
def _update(params: Any, opt_state: Any, average: Any, batch: Any, key: Any) -> Any:
    updates, opt_state = OPTIMIZER.update(jax.grad(_loss)(params, batch, key), opt_state, params)
    params = optax.apply_updates(params, updates)
    return params, opt_state, jax.tree.map(lambda old, new: old * 0.9 + new * 0.1, average, params)


def train(state: dict[str, Any]) -> dict[str, Any]:
    """One step."""
    place = state["step"] * BATCH % len(DATA)
    if not place and state["step"]:
        shuffle, now = jax.random.split(state["shuffle"])
        state = {**state, "shuffle": shuffle, "order": jax.random.permutation(now, len(DATA))}
    dropout, now = jax.random.split(state["dropout"])
    batch = DATA[np.asarray(state["order"])[place : place + BATCH]]
    params, opt_state, average = _update(state["params"], state["opt_state"], state["average"], batch, now)
    new = {"params": params, "opt_state": opt_state, "average": average, "dropout": dropout, "step": state["step"] + 1}
    return {**state, **new}


def digest(state: dict[str, Any]) -> str:
    """All bits of a state, in short."""
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        is_key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        array = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
        found.update(f"{path} {array.dtype} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def main(directory: str, steps: int, *flags: str) -> None:
    """Goes on from the newest checkpoint."""
    if "--trees" in flags:
        trees = milepost.jax.TreeManager(directory, max_to_keep=2)
        save: Callable[[Any], object] = trees.save
        state, _ = trees.restore_latest(initial(seed=5 if trees.latest_checkpoint else 0))
    else:
        checkpoint: Any = milepost.Checkpoint()
        manager = milepost.CheckpointManager(checkpoint, directory, max_to_keep=2)
        manager.restore_or_initialize()
        checkpoint.state = initial(seed=5 if manager.latest_checkpoint else 0)
        state = checkpoint.state

        def assign_and_save(new: Any) -> object:
            checkpoint.state = new
            return manager.save()

        save = assign_and_save

    if state["step"]:
        save(state)  # again, right after the restore
    while state["step"] < steps:
        state = train(state)
        save(state)
    print(digest(state), flush=True)
    if "--kill" in flags:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
