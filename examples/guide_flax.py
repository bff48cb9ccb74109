"""TensorFlow's guide "Training checkpoints", section by section, in Flax NNX.

    python guide_flax.py [directory]

Sections stand in the order of the guide. Where that takes batches from tf.data, these come from a small class that can
be resumed, so that no TensorFlow is needed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import milepost

INPUTS = np.arange(10, dtype=np.float32)[:, None]
LABELS = INPUTS * 5 + np.arange(5, dtype=np.float32)[None, :]


# The model and the data


class Net(nnx.Module):
    """A simple linear model."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.l1 = nnx.Linear(1, 5, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.l1(x)


class Batches(nnx.Pytree):
    """Goes through the toy dataset for ever, two examples at a time. How far it came is part of the checkpoint."""

    def __init__(self, batch_size: int = 2) -> None:
        self.batch_size = batch_size
        self.position = nnx.Variable(0)

    def __next__(self) -> dict[str, np.ndarray]:
        start = self.position.get_value()
        self.position.set_value((start + self.batch_size) % len(INPUTS))
        return {"x": INPUTS[start : start + self.batch_size], "y": LABELS[start : start + self.batch_size]}


@nnx.jit
def train_step(net: Net, optimizer: nnx.Optimizer, example: dict[str, jax.Array]) -> jax.Array:
    """Trains ``net`` on ``example`` and returns the loss, the mean absolute error."""

    def loss_of(net: Net) -> jax.Array:
        return jnp.mean(jnp.abs(net(example["x"]) - example["y"]))

    loss, gradients = nnx.value_and_grad(loss_of)(net)
    optimizer.update(net, gradients)
    return loss


# Create the checkpoint objects, train and checkpoint the model


def create(directory: str) -> tuple[milepost.Checkpoint, milepost.CheckpointManager]:
    """Everything that one program needs to train, grouped in a checkpoint, and the manager of its directory."""
    net = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, optax.adam(0.1), wrt=nnx.Param)
    checkpoint = milepost.Checkpoint(step=nnx.Variable(0), optimizer=optimizer, net=net, iterator=Batches())
    return checkpoint, milepost.CheckpointManager(checkpoint, directory, max_to_keep=3)


def train_and_checkpoint(checkpoint: milepost.Checkpoint, manager: milepost.CheckpointManager) -> None:
    """Trains fifty steps from wherever the last checkpoint stopped, and saves one every ten."""
    checkpoint.restore(manager.latest_checkpoint)
    if manager.latest_checkpoint:
        print(f"Restored from {manager.latest_checkpoint}")
    else:
        print("Initializing from scratch.")
    for _ in range(50):
        loss = train_step(checkpoint.net, checkpoint.optimizer, next(checkpoint.iterator))
        step = checkpoint.step.get_value() + 1
        checkpoint.step.set_value(step)
        if step % 10 == 0:
            save_path = manager.save()
            print(f"Saved checkpoint for step {step}: {save_path}")
            print(f"loss {loss:1.2f}")


# Loading mechanics


def load_bias(directory: str) -> tuple[nnx.Dict, milepost.LoadStatus]:
    """Loads only the bias, by building a path to it; returns the layer, and the status of the restore."""
    to_restore = nnx.Param(jnp.zeros(5))
    print(to_restore[...])  # all zeros
    fake_layer = nnx.Dict(bias=to_restore)
    fake_net = nnx.Dict(l1=fake_layer)
    new_root = milepost.Checkpoint(net=fake_net)
    status = new_root.restore(milepost.latest_checkpoint(directory))
    print(to_restore[...])  # the restored value
    status.assert_existing_objects_matched()
    try:
        status.assert_consumed()
    except AssertionError as error:
        print(f"assert_consumed: {str(error).splitlines()[0]}")
    return fake_layer, status


# Delayed restorations


def restore_kernel_late(fake_layer: nnx.Dict, status: milepost.LoadStatus) -> None:
    """Attaches a variable after the restore. NNX tells nobody of it, so the status is asked to look again."""
    delayed_restore = nnx.Param(jnp.zeros((1, 5)))
    print(delayed_restore[...])  # not restored; still zeros
    fake_layer["kernel"] = delayed_restore
    status.assert_existing_objects_matched()
    print(delayed_restore[...])  # restored
    status.expect_partial()


def restore_optimizer_late(directory: str) -> None:
    """What is attached to the checkpoint itself has its values at once."""
    net = Net(nnx.Rngs(1))
    checkpoint = milepost.Checkpoint(net=net)
    status = checkpoint.restore(milepost.latest_checkpoint(directory))
    checkpoint.optimizer = nnx.Optimizer(net, optax.adam(0.1), wrt=nnx.Param)
    print(f"optimizer restored at step {int(checkpoint.optimizer.step[...])}")
    status.expect_partial()


# Manually inspecting checkpoints


def inspect(directory: str) -> None:
    """Lists keys and shapes, and reads one tensor."""
    for key, shape in milepost.list_variables(directory):
        print(f"{key} {shape}")
    reader = milepost.load_checkpoint(directory)
    key = "net/l1/kernel/.ATTRIBUTES/VARIABLE_VALUE"
    print("Shape:", reader.get_variable_to_shape_map()[key])
    print("Dtype:", reader.get_variable_to_dtype_map()[key].name)
    print(reader.get_tensor(key))


# List and dictionary tracking


def track_lists_and_dicts() -> None:
    """Lists and dicts are tracked, and restore what is added to them."""
    save = milepost.Checkpoint()
    save.listed = [nnx.Param(jnp.float32(1.0))]
    save.listed.append(nnx.Param(jnp.float32(2.0)))
    save.mapped = {"one": save.listed[0]}
    save.mapped["two"] = save.listed[1]
    save_path = save.save("./tf_list_example")

    restore = milepost.Checkpoint()
    v2 = nnx.Param(jnp.float32(0.0))
    assert v2[...] == 0.0  # not restored yet
    restore.mapped = {"two": v2}
    restore.restore(save_path)
    assert v2[...] == 2.0

    restore.listed = []
    print(restore.listed)  # ListWrapper([])
    v1 = nnx.Param(jnp.float32(0.0))
    restore.listed.append(v1)  # restores v1, from the restore above
    assert v1[...] == 1.0


class Stack(nnx.Module):
    """A model that keeps its layers in NNX's own list."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.blocks = nnx.List([nnx.Linear(1, 4, rngs=rngs), nnx.Linear(4, 5, rngs=rngs)])

    def __call__(self, x: jax.Array) -> jax.Array:
        for block in self.blocks:
            x = block(x)
        return x


# Saving weights


def save_weights(model: nnx.Module, path: str) -> None:
    """Saves a model alone, and loads it into one that was never given memory."""
    fresh = nnx.eval_shape(lambda: type(model)(nnx.Rngs(0)))
    milepost.load_weights(fresh, milepost.save_weights(model, path)).assert_consumed()
    assert jnp.array_equal(fresh(INPUTS), model(INPUTS))
    print(f"{type(model).__name__}: {len(jax.tree.leaves(nnx.state(fresh)))} weights restored from {path}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs every section."""
    parser = argparse.ArgumentParser(description="The guide to training checkpoints, in Flax NNX.")
    parser.add_argument("directory", nargs="?", help="where to write; by default a temporary directory")
    directory = parser.parse_args(arguments).directory or tempfile.mkdtemp()
    os.makedirs(directory, exist_ok=True)
    os.chdir(directory)

    train_and_checkpoint(*create("./tf_ckpts"))
    checkpoint, manager = create("./tf_ckpts")  # as a new program would make them
    train_and_checkpoint(checkpoint, manager)
    print(manager.checkpoints)  # the three that are left
    print(*sorted(os.listdir("./tf_ckpts")))
    restore_kernel_late(*load_bias("./tf_ckpts/"))
    restore_optimizer_late("./tf_ckpts/")
    inspect("./tf_ckpts/")
    track_lists_and_dicts()
    save_weights(checkpoint.net, "./easy_checkpoint")
    save_weights(Stack(nnx.Rngs(2)), "./stack_checkpoint")


if __name__ == "__main__":
    main()
