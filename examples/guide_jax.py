"""TensorFlow's guide "Training checkpoints", section by section, in plain JAX with Optax.

    python guide_jax.py [directory]

Sections stand in the order of the guide. Where that has objects that change, JAX has trees of arrays that do not: what a
step returns is assigned to the checkpoint's attributes, and a restore puts new trees there.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import milepost
import milepost.jax

INPUTS = jnp.arange(10, dtype=jnp.float32)[:, None]
LABELS = INPUTS * 5 + jnp.arange(5, dtype=jnp.float32)[None, :]
OPTIMIZER = optax.adam(0.1)


# The model, the optimizer and the data


def init_net(key: jax.Array) -> dict[str, Any]:
    """The parameters of a simple linear model."""
    kernel = jax.nn.initializers.glorot_uniform()(key, (1, 5), jnp.float32)
    return {"l1": {"kernel": kernel, "bias": jnp.zeros(5)}}


def apply_net(net: dict[str, Any], x: jax.Array) -> jax.Array:
    """The model's output."""
    return x @ net["l1"]["kernel"] + net["l1"]["bias"]


class Batches(milepost.Module):
    """Goes through the toy dataset for ever, two examples at a time. How far it came is part of the checkpoint."""

    def __init__(self, batch_size: int = 2) -> None:
        self.batch_size = batch_size
        self.position = milepost.Variable(0)

    def __next__(self) -> dict[str, jax.Array]:
        start = int(self.position)
        self.position.assign((start + self.batch_size) % len(INPUTS))
        return {"x": INPUTS[start : start + self.batch_size], "y": LABELS[start : start + self.batch_size]}


@jax.jit  # type: ignore[untyped-decorator]
def train_step(net: Any, opt_state: Any, step: jax.Array, example: dict[str, jax.Array]) -> tuple[Any, Any, Any, Any]:
    """Trains on one batch; returns the new parameters, optimizer state and step, and the loss."""

    def loss_of(net: Any) -> jax.Array:
        return jnp.mean(jnp.abs(apply_net(net, example["x"]) - example["y"]))

    loss, gradients = jax.value_and_grad(loss_of)(net)
    updates, opt_state = OPTIMIZER.update(gradients, opt_state, net)
    return optax.apply_updates(net, updates), opt_state, step + 1, loss


# Create the checkpoint objects, train and checkpoint the model


def create(directory: str) -> tuple[milepost.Checkpoint, milepost.CheckpointManager]:
    """Everything that one program needs to train, grouped in a checkpoint, and the manager of its directory."""
    net = init_net(jax.random.key(0))
    checkpoint = milepost.Checkpoint(
        step=jnp.asarray(0, jnp.int32), opt_state=OPTIMIZER.init(net), net=net, iterator=Batches()
    )
    return checkpoint, milepost.CheckpointManager(checkpoint, directory, max_to_keep=3)


def train_and_checkpoint(checkpoint: milepost.Checkpoint, manager: milepost.CheckpointManager) -> None:
    """Trains fifty steps from wherever the last checkpoint stopped, and saves one every ten."""
    checkpoint.restore(manager.latest_checkpoint)
    if manager.latest_checkpoint:
        print(f"Restored from {manager.latest_checkpoint}")
    else:
        print("Initializing from scratch.")
    for _ in range(50):
        checkpoint.net, checkpoint.opt_state, checkpoint.step, loss = train_step(
            checkpoint.net, checkpoint.opt_state, checkpoint.step, next(checkpoint.iterator)
        )
        if int(checkpoint.step) % 10 == 0:
            save_path = manager.save()
            print(f"Saved checkpoint for step {int(checkpoint.step)}: {save_path}")
            print(f"loss {loss:1.2f}")


# Loading mechanics


def load_bias(directory: str) -> milepost.Checkpoint:
    """Loads only the bias, by building a path to it, and returns the layer."""
    fake_layer = milepost.Checkpoint(bias=jnp.zeros(5))
    print(fake_layer.bias)  # all zeros
    fake_net = milepost.Checkpoint(l1=fake_layer)
    new_root = milepost.Checkpoint(net=fake_net)
    status = new_root.restore(milepost.latest_checkpoint(directory))
    print(fake_layer.bias)  # the restored value, in a new array
    status.assert_existing_objects_matched()
    try:
        status.assert_consumed()
    except AssertionError as error:
        print(f"assert_consumed: {str(error).splitlines()[0]}")
    status.expect_partial()
    return fake_layer


# Delayed restorations


def restore_kernel_late(fake_layer: milepost.Checkpoint) -> None:
    """Attaches an array after the restore: what is attached is one with the saved value."""
    delayed_restore = jnp.zeros((1, 5))
    print(delayed_restore)  # zeros, and will always be
    fake_layer.kernel = delayed_restore
    print(fake_layer.kernel)  # restored


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
    save.listed = [jnp.asarray(1.0)]
    save.listed.append(jnp.asarray(2.0))
    save.mapped = {"one": save.listed[0]}
    save.mapped["two"] = save.listed[1]
    save_path = save.save("./tf_list_example")

    restore = milepost.Checkpoint()
    restore.mapped = {"two": jnp.asarray(0.0)}
    restore.restore(save_path)
    assert restore.mapped["two"] == 2.0

    restore.listed = []
    print(restore.listed)  # ListWrapper([]); a list or dict that holds arrays when it is assigned stays what it is
    restore.listed.append(jnp.asarray(0.0))  # takes its value from the restore above
    assert restore.listed[0] == 1.0


# Saving weights


def save_weights(net: dict[str, Any], path: str) -> None:
    """Saves parameters alone, and makes a tree of them from nothing but its shapes."""
    milepost.jax.save(path, net)
    shapes = jax.eval_shape(init_net, jax.random.key(0))
    fresh, status = milepost.jax.restore(path, shapes)
    status.assert_consumed()
    assert np.array_equal(apply_net(fresh, INPUTS), apply_net(net, INPUTS))
    print(f"{len(jax.tree.leaves(fresh))} arrays restored from {path}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs every section."""
    parser = argparse.ArgumentParser(description="The guide to training checkpoints, in JAX.")
    parser.add_argument("directory", nargs="?", help="where to write; by default a temporary directory")
    directory = parser.parse_args(arguments).directory or tempfile.mkdtemp()
    os.makedirs(directory, exist_ok=True)
    os.chdir(directory)

    train_and_checkpoint(*create("./tf_ckpts"))
    checkpoint, manager = create("./tf_ckpts")  # as a new program would make them
    train_and_checkpoint(checkpoint, manager)
    print(manager.checkpoints)  # the three that are left
    print(*sorted(os.listdir("./tf_ckpts")))
    restore_kernel_late(load_bias("./tf_ckpts/"))
    inspect("./tf_ckpts/")
    track_lists_and_dicts()
    save_weights(checkpoint.net, "./easy_checkpoint")


if __name__ == "__main__":
    main()
