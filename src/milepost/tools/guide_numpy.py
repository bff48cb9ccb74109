"""TensorFlow's guide "Training checkpoints", section by section, in NumPy.

    python guide_numpy.py [directory]

Sections are in the order of the guide. What the guide gets from Keras and tf.data is written out here: a layer that
makes its kernel in its first call, Adam with its slot variables, and batches that can be resumed.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import milepost

Floats = NDArray[np.float32]


# The model, the optimizer and the data


class Dense(milepost.Module):
    """A layer that makes its variables in its first call, when the size of its input is known."""

    def __init__(self, units: int) -> None:
        self.units = units

    def __call__(self, x: Floats) -> Floats:
        if not hasattr(self, "kernel"):
            limit = np.sqrt(6 / (x.shape[-1] + self.units))
            initial = np.random.default_rng(0).uniform(-limit, limit, (x.shape[-1], self.units))
            self.kernel = milepost.Variable(initial, np.float32)
            self.bias = milepost.Variable(np.zeros(self.units, np.float32))
        output: Floats = x @ self.kernel + self.bias
        return output


class Net(milepost.Module):
    """A simple linear model."""

    def __init__(self) -> None:
        self.l1 = Dense(5)

    def __call__(self, x: Floats) -> Floats:
        return self.l1(x)


class Adam(milepost.SlotOwner):
    """Adam (Kingma and Ba, 2015, section 2). Its moments `m` and `v` are slot variables of what it trains."""

    def __init__(self, learning_rate: float) -> None:
        self.iter = milepost.Variable(np.int64(0), trainable=False)
        self.learning_rate = milepost.Variable(learning_rate, trainable=False)
        self.beta_1 = milepost.Variable(0.9, trainable=False)
        self.beta_2 = milepost.Variable(0.999, trainable=False)

    def apply_gradients(self, gradients: Sequence[Floats], variables: Sequence[milepost.Variable]) -> None:
        self.iter += 1
        b1, b2, t = float(self.beta_1), float(self.beta_2), int(self.iter)
        rate = np.float32(float(self.learning_rate) * np.sqrt(1 - b2**t) / (1 - b1**t))
        for gradient, variable in zip(gradients, variables, strict=True):
            m = self.add_slot(variable, "m")
            v = self.add_slot(variable, "v")
            m.assign(b1 * m + (1 - b1) * gradient)
            v.assign(b2 * v + (1 - b2) * gradient**2)
            variable.assign_sub(rate * m / (np.sqrt(v) + 1e-7))


class ShuffledBatches(milepost.PythonState):
    """Iterates over the toy dataset endlessly, in a new order each time, and can be resumed in the middle."""

    def __init__(self, batch_size: int = 2) -> None:
        self.inputs: Floats = np.arange(10, dtype=np.float32)[:, None]
        self.labels: Floats = self.inputs * 5 + np.arange(5, dtype=np.float32)[None, :]
        self.batch_size = batch_size
        self.random = np.random.default_rng(1)
        self.order: list[int] = []

    def __next__(self) -> dict[str, Floats]:
        if not self.order:
            self.order = self.random.permutation(len(self.inputs)).tolist()
        chosen, self.order = self.order[: self.batch_size], self.order[self.batch_size :]
        return {"x": self.inputs[chosen], "y": self.labels[chosen]}

    def serialize(self) -> str:
        return json.dumps({"order": self.order, "random": self.random.bit_generator.state})

    def deserialize(self, string_value: str) -> None:
        state = json.loads(string_value)
        self.order = state["order"]
        self.random.bit_generator.state = state["random"]


def train_step(net: Net, example: dict[str, Floats], optimizer: Adam) -> float:
    """Trains ``net`` on ``example`` and returns the loss, the mean absolute error."""
    output = net(example["x"])
    error = output - example["y"]
    slope = np.sign(error) / np.float32(error.size)
    gradients = [example["x"].T @ slope, slope.sum(axis=0)]
    optimizer.apply_gradients(gradients, [net.l1.kernel, net.l1.bias])
    return float(np.mean(np.abs(error)))


# Create the checkpoint objects, train and checkpoint the model


class Training(milepost.Checkpoint):
    """Everything that the program saves. The annotations tell editors and type checkers what the arguments become."""

    step: milepost.Variable
    optimizer: Adam
    net: Net
    iterator: ShuffledBatches


def create(directory: str) -> tuple[Training, milepost.CheckpointManager[Training]]:
    """Groups everything that the program saves in a checkpoint, and makes the manager of its directory."""
    checkpoint = Training(step=milepost.Variable(0), optimizer=Adam(0.1), net=Net(), iterator=ShuffledBatches())
    return checkpoint, milepost.CheckpointManager(checkpoint, directory, max_to_keep=3)


def train_and_checkpoint(
    checkpoint: Training,
    manager: milepost.CheckpointManager[Training],
    steps: int = 50,
    every_step: Callable[[int, float], object] = lambda step, loss: None,
) -> None:
    """Trains from the last checkpoint on, and saves one every ten steps."""
    checkpoint.restore(manager.latest_checkpoint)
    if manager.latest_checkpoint:
        print(f"Restored from {manager.latest_checkpoint}")
    else:
        print("Initializing from scratch.")
    for _ in range(steps):
        loss = train_step(checkpoint.net, next(checkpoint.iterator), checkpoint.optimizer)
        checkpoint.step.assign_add(1)
        every_step(int(checkpoint.step), loss)
        if int(checkpoint.step) % 10 == 0:
            save_path = manager.save()
            print(f"Saved checkpoint for step {int(checkpoint.step)}: {save_path}")
            print(f"loss {loss:1.2f}")


# Loading mechanics


def load_bias(directory: str) -> tuple[milepost.Checkpoint, milepost.LoadStatus]:
    """Loads only the bias, through objects that lead to it. Returns the layer and the status of the restore."""
    to_restore = milepost.Variable(np.zeros(5, np.float32))
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
    return fake_layer, status


def restore_kernel_late(fake_layer: milepost.Checkpoint) -> None:
    """Attaches a variable after the restore. It gets its saved value when it is attached."""
    delayed_restore = milepost.Variable(np.zeros((1, 5), np.float32))
    print(delayed_restore.numpy())  # still zeros
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
    print("Dtype:", reader.get_variable_to_dtype_map()[key])
    print(reader.get_tensor(key))


# List and dictionary tracking


def track_lists_and_dicts(directory: str) -> None:
    """Lists and dicts are tracked, and what is added to them later is restored."""
    save: Any = milepost.Checkpoint()
    save.listed = [milepost.Variable(1.0)]
    save.listed.append(milepost.Variable(2.0))
    save.mapped = {"one": save.listed[0]}
    save.mapped["two"] = save.listed[1]
    save_path = save.save(os.path.join(directory, "tf_list_example"))

    restore: Any = milepost.Checkpoint()
    v2 = milepost.Variable(0.0)
    assert v2.numpy() == 0.0  # not restored yet
    restore.mapped = {"two": v2}
    restore.restore(save_path)
    assert v2.numpy() == 2.0

    restore.listed = []
    print(restore.listed)  # ListWrapper([])
    v1 = milepost.Variable(0.0)
    restore.listed.append(v1)  # restores v1, from the restore above
    assert v1.numpy() == 1.0


# Saving a model alone


def save_weights(directory: str, trained: Net) -> None:
    """Saves a model without a counter, and loads it into one that was never called."""
    path = milepost.save_weights(trained, os.path.join(directory, "easy_checkpoint"))
    fresh = Net()
    status = milepost.load_weights(fresh, path)
    x = np.ones((1, 1), np.float32)
    assert np.array_equal(fresh(x), trained(x))  # its kernel was made, and restored, in this call
    status.assert_consumed()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs every section."""
    parser = argparse.ArgumentParser(description="The guide to training checkpoints, in NumPy.")
    parser.add_argument("directory", nargs="?", help="where to write; by default a temporary directory")
    directory = parser.parse_args(arguments).directory or tempfile.mkdtemp()
    os.makedirs(directory, exist_ok=True)
    os.chdir(directory)

    train_and_checkpoint(*create("./tf_ckpts"))
    checkpoint, manager = create("./tf_ckpts")  # as a new program would make them
    train_and_checkpoint(checkpoint, manager)
    print(manager.checkpoints)  # the three that are left
    print(*sorted(os.listdir("./tf_ckpts")))
    fake_layer, status = load_bias("./tf_ckpts/")
    restore_kernel_late(fake_layer)
    print(status.expect_partial().report())
    inspect("./tf_ckpts/")
    track_lists_and_dicts(".")
    save_weights("./easy", checkpoint.net)


if __name__ == "__main__":
    main()
