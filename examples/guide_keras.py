"""TensorFlow's guide "Training checkpoints", section by section, in Keras 3, on whatever backend it runs.

    KERAS_BACKEND=jax python guide_keras.py [directory]

Sections stand in the order of the guide. Where that takes batches from tf.data, these come from a small class that can
be resumed, so that no TensorFlow is needed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence

import keras
import numpy as np
from numpy.typing import NDArray

import milepost

Floats = NDArray[np.float32]

INPUTS: Floats = np.arange(10, dtype=np.float32)[:, None]
LABELS: Floats = INPUTS * 5 + np.arange(5, dtype=np.float32)[None, :]


# The model and the data


class Net(keras.Model):
    """A simple linear model. It makes its variables when it is first called."""

    def __init__(self) -> None:
        super().__init__()
        self.l1 = keras.layers.Dense(5)

    def call(self, x: object) -> object:
        return self.l1(x)


class Batches(milepost.Module):
    """Goes through the toy dataset for ever, two examples at a time. How far it came is part of the checkpoint."""

    def __init__(self, batch_size: int = 2) -> None:
        self.batch_size = batch_size
        self.position = milepost.Variable(0)

    def __next__(self) -> dict[str, Floats]:
        start = int(self.position)
        self.position.assign((start + self.batch_size) % len(INPUTS))
        return {"x": INPUTS[start : start + self.batch_size], "y": LABELS[start : start + self.batch_size]}


def train_step(net: Net, example: dict[str, Floats]) -> float:
    """Trains ``net`` on ``example`` and returns the loss of this batch alone."""
    net.reset_metrics()
    return float(net.train_on_batch(example["x"], example["y"]))


# Create the checkpoint objects, train and checkpoint the model


def create(directory: str) -> tuple[milepost.Checkpoint, milepost.CheckpointManager]:
    """Everything that one program needs to train, grouped in a checkpoint, and the manager of its directory."""
    net = Net()
    optimizer = keras.optimizers.Adam(0.1)
    net.compile(optimizer=optimizer, loss="mean_absolute_error")
    step = keras.Variable(1, trainable=False, dtype="int32")
    checkpoint = milepost.Checkpoint(step=step, optimizer=optimizer, net=net, iterator=Batches())
    return checkpoint, milepost.CheckpointManager(checkpoint, directory, max_to_keep=3)


def train_and_checkpoint(checkpoint: milepost.Checkpoint, manager: milepost.CheckpointManager) -> None:
    """Trains fifty steps from wherever the last checkpoint stopped, and saves one every ten."""
    checkpoint.restore(manager.latest_checkpoint)
    if manager.latest_checkpoint:
        print(f"Restored from {manager.latest_checkpoint}")
    else:
        print("Initializing from scratch.")
    for _ in range(50):
        loss = train_step(checkpoint.net, next(checkpoint.iterator))
        checkpoint.step.assign_add(1)
        if int(checkpoint.step) % 10 == 0:
            save_path = manager.save()
            print(f"Saved checkpoint for step {int(checkpoint.step)}: {save_path}")
            print(f"loss {loss:1.2f}")


# Loading mechanics


def load_bias(directory: str) -> milepost.Checkpoint:
    """Loads only the bias, by building a path to it, and returns the layer."""
    to_restore = keras.Variable("zeros", shape=(5,))
    print(to_restore.numpy())  # all zeros
    fake_layer = milepost.Checkpoint(bias=to_restore)
    fake_net = milepost.Checkpoint(l1=fake_layer)
    new_root = milepost.Checkpoint(net=fake_net)
    status = new_root.restore(milepost.latest_checkpoint(directory))
    print(to_restore.numpy())  # the restored value
    status.assert_existing_objects_matched()
    try:
        status.assert_consumed()
    except AssertionError as error:
        print(f"assert_consumed: {str(error).splitlines()[0]}")
    status.expect_partial()
    return fake_layer


# Delayed restorations


def restore_kernel_late(fake_layer: milepost.Checkpoint) -> None:
    """Attaches a variable after the restore: it has its value as soon as it is attached."""
    delayed_restore = keras.Variable("zeros", shape=(1, 5))
    print(delayed_restore.numpy())  # not restored; still zeros
    fake_layer.kernel = delayed_restore
    print(delayed_restore.numpy())  # restored


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
    save.listed = [keras.Variable(1.0)]
    save.listed.append(keras.Variable(2.0))
    save.mapped = {"one": save.listed[0]}
    save.mapped["two"] = save.listed[1]
    save_path = save.save("./tf_list_example")

    restore = milepost.Checkpoint()
    v2 = keras.Variable(0.0)
    assert v2.numpy() == 0.0  # not restored yet
    restore.mapped = {"two": v2}
    restore.restore(save_path)
    assert v2.numpy() == 2.0

    restore.listed = []
    print(restore.listed)  # ListWrapper([])
    v1 = keras.Variable(0.0)
    restore.listed.append(v1)  # restores v1, from the restore above
    assert v1.numpy() == 1.0


class Stack(keras.Model):
    """A model that keeps its layers in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = [keras.layers.Dense(4, activation="relu"), keras.layers.Dense(5)]

    def call(self, x: object) -> object:
        for block in self.blocks:
            x = block(x)
        return x


# Saving weights


def save_weights(model: keras.Model, fresh: keras.Model, path: str) -> None:
    """Saves a model alone, and loads it into one that was never called."""
    expected = model.predict(INPUTS, verbose=0)
    status = milepost.load_weights(fresh, milepost.save_weights(model, path))
    result = fresh.predict(INPUTS, verbose=0)  # its variables were made, and restored, in this call
    assert np.array_equal(result, expected)
    status.assert_consumed()
    print(f"{type(model).__name__}: {len(fresh.weights)} weights restored from {path}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs every section."""
    parser = argparse.ArgumentParser(description="The guide to training checkpoints, in Keras 3.")
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
    trained = Net()
    milepost.Checkpoint(net=trained).restore(manager.latest_checkpoint).expect_partial()
    save_weights(trained, Net(), "./easy_checkpoint")
    save_weights(Stack(), Stack(), "./stack_checkpoint")


if __name__ == "__main__":
    main()
