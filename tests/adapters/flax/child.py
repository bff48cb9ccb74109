"""Trains in a process of its own: ``python -m tests.adapters.flax.child DIRECTORY LAST_STEP``.

Goes on from the newest checkpoint and saves again at once, then every five steps. After the last step it kills itself,
or, at the end of the training, writes all losses of this process and a digest of its state.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import milepost

STEPS, EVERY = 20, 5
INPUTS = np.sin(np.arange(36, dtype=np.float32)).reshape(12, 3)
TARGETS = np.flip(INPUTS).copy()


class Net(nnx.Module):
    def __init__(self, rngs):
        self.layers = nnx.List([nnx.Linear(3, 8, rngs=rngs), nnx.Linear(8, 3, rngs=rngs)])
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.layers[1](self.dropout(nnx.relu(self.norm(self.layers[0](x)))))


class Batches(milepost.PythonState):
    """Goes through the data for ever, in another order each time."""

    def __init__(self):
        self.random = np.random.default_rng(1)
        self.order = []

    def __next__(self):
        if not self.order:
            self.order = self.random.permutation(len(INPUTS)).tolist()
        chosen, self.order = self.order[:4], self.order[4:]
        return INPUTS[chosen], TARGETS[chosen]

    def serialize(self):
        return json.dumps([self.order, self.random.bit_generator.state])

    def deserialize(self, string_value):
        self.order, self.random.bit_generator.state = json.loads(string_value)


@nnx.jit
def train_step(net, optimizer, metrics, x, y):
    def loss_of(net):
        return jnp.mean((net(x) - y) ** 2)

    loss, gradients = nnx.value_and_grad(loss_of)(net)
    optimizer.update(net, gradients)
    metrics.update(values=loss)
    return loss


def digest(state):
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(state):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        found.update(np.asarray(jax.random.key_data(leaf) if is_key else leaf).tobytes())
    return found.hexdigest()


def main(directory, last):
    # Seeds that differ from process to process, so that what is not restored shows.
    first = not Path(directory, "checkpoint").exists()
    net = Net(nnx.Rngs(0 if first else os.getpid()))
    schedule = optax.cosine_decay_schedule(0.1, STEPS)
    optimizer = nnx.Optimizer(net, optax.adamw(schedule), wrt=nnx.Param)
    metrics, batches = nnx.metrics.Average(), Batches()
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer, metrics=metrics, batches=batches)
    manager = milepost.CheckpointManager(checkpoint, directory, max_to_keep=3)
    if not first:
        checkpoint.restore(manager.latest_checkpoint).assert_consumed()
        manager.save()
    losses = {}
    for step in range(int(optimizer.step[...]) + 1, last + 1):
        losses[step] = float(train_step(net, optimizer, metrics, *next(batches))).hex()
        if step % EVERY == 0:
            manager.save()
    if last < STEPS:
        os.kill(os.getpid(), signal.SIGKILL)
    state = nnx.state((net, optimizer, metrics))
    Path(directory, "result.json").write_text(json.dumps([losses, digest(state), batches.serialize()]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
