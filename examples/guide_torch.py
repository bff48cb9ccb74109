"""TensorFlow's guide "Training checkpoints", section by section, in PyTorch.

    python guide_torch.py [directory]

Sections stand in the order of the guide. Where that takes batches from tf.data, these come from a DataLoader whose sampler
can be resumed; torchdata's StatefulDataLoader, which can be by itself, would be tracked in the same way.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

import milepost

INPUTS = torch.arange(10, dtype=torch.float32)[:, None]
LABELS = INPUTS * 5 + torch.arange(5, dtype=torch.float32)[None, :]


# The model and the data


class Net(nn.Module):
    """A simple linear model, whose layer makes its parameters when it is first called."""

    def __init__(self) -> None:
        super().__init__()
        self.l1 = nn.LazyLinear(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.l1(x)
        return output


class ResumableSampler(Sampler[int]):
    """Goes through the examples in another order each time, and can be resumed in the middle.

    Whatever has these two methods is tracked; their state may hold numbers, text, tensors, lists and dicts.
    """

    def __init__(self, size: int, seed: int = 1) -> None:
        self.size = size
        self.random = torch.Generator().manual_seed(seed)
        self.order = torch.empty(0, dtype=torch.int64)

    def __iter__(self) -> Iterator[int]:
        if not len(self.order):
            self.order = torch.randperm(self.size, generator=self.random)
        while len(self.order):
            first, self.order = int(self.order[0]), self.order[1:]
            yield first

    def state_dict(self) -> dict[str, Any]:
        return {"order": self.order, "random": self.random.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.order = state["order"]
        self.random.set_state(state["random"])


def batches(sampler: ResumableSampler) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of two of the toy dataset, for ever."""
    loader = DataLoader(TensorDataset(INPUTS, LABELS), batch_size=2, sampler=sampler)
    while True:
        yield from loader


def train_step(net: Net, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> float:
    """Trains ``net`` on a batch and returns the loss, the mean absolute error."""
    loss = nn.functional.l1_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


# Create the checkpoint objects, train and checkpoint the model


def create(directory: str) -> tuple[milepost.Checkpoint, milepost.CheckpointManager]:
    """Everything that one program needs to train, grouped in a checkpoint, and the manager of its directory."""
    net = Net()
    checkpoint = milepost.Checkpoint(
        step=milepost.Variable(0),
        optimizer=torch.optim.AdamW(net.parameters(), lr=0.1),
        net=net,
        sampler=ResumableSampler(len(INPUTS)),
    )
    return checkpoint, milepost.CheckpointManager(checkpoint, directory, max_to_keep=3)


def train_and_checkpoint(checkpoint: milepost.Checkpoint, manager: milepost.CheckpointManager) -> None:
    """Trains fifty steps from wherever the last checkpoint stopped, and saves one every ten."""
    # The net has no parameters yet, and the optimizer no state: what is restored now arrives in the first step.
    checkpoint.restore(manager.latest_checkpoint)
    if manager.latest_checkpoint:
        print(f"Restored from {manager.latest_checkpoint}")
    else:
        print("Initializing from scratch.")
    examples = batches(checkpoint.sampler)
    for _ in range(50):
        loss = train_step(checkpoint.net, checkpoint.optimizer, *next(examples))
        checkpoint.step.assign_add(1)
        if int(checkpoint.step) % 10 == 0:
            save_path = manager.save()
            print(f"Saved checkpoint for step {int(checkpoint.step)}: {save_path}")
            print(f"loss {loss:1.2f}")


# Loading mechanics


def load_bias(directory: str) -> tuple[milepost.Checkpoint, milepost.LoadStatus]:
    """Loads only the bias, by building a path to it; returns the layer, and the status of the restore."""
    to_restore = torch.zeros(5)
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


# Delayed restorations


def restore_weight_late(fake_layer: milepost.Checkpoint) -> None:
    """Attaches a tensor after the restore: it has its value as soon as it is attached."""
    delayed_restore = torch.zeros(5, 1)
    print(delayed_restore.T.numpy())  # not restored; still zeros
    fake_layer.weight = delayed_restore
    print(delayed_restore.T.numpy())  # restored


def restore_layer_late(directory: str) -> None:
    """So has a layer that is added to a module, and the optimizer that is made for it."""
    net = nn.Module()
    checkpoint = milepost.Checkpoint(net=net)
    status = checkpoint.restore(milepost.latest_checkpoint(directory))
    net.l1 = nn.Linear(1, 5)
    checkpoint.optimizer = torch.optim.AdamW(net.parameters())
    group, state = checkpoint.optimizer.param_groups[0], checkpoint.optimizer.state[net.l1.weight]
    print(f"optimizer restored at step {int(state['step'])}, learning rate {group['lr']}")
    status.expect_partial()


# Manually inspecting checkpoints


def inspect(directory: str) -> None:
    """Lists keys and shapes, and reads one tensor."""
    for key, shape in milepost.list_variables(directory):
        print(f"{key} {shape}")
    reader = milepost.load_checkpoint(directory)
    key = "net/l1/weight/.ATTRIBUTES/VARIABLE_VALUE"
    print("Shape:", reader.get_variable_to_shape_map()[key])
    print("Dtype:", reader.get_variable_to_dtype_map()[key].name)
    print(reader.get_tensor(key).T)


# List and dictionary tracking


def track_lists_and_dicts() -> None:
    """Lists and dicts are tracked, and restore what is added to them."""
    save = milepost.Checkpoint()
    save.listed = [torch.tensor(1.0)]
    save.listed.append(torch.tensor(2.0))
    save.mapped = {"one": save.listed[0]}
    save.mapped["two"] = save.listed[1]
    save_path = save.save("./tf_list_example")

    restore = milepost.Checkpoint()
    v2 = torch.tensor(0.0)
    assert v2 == 0.0  # not restored yet
    restore.mapped = {"two": v2}
    restore.restore(save_path)
    assert v2 == 2.0

    restore.listed = []
    print(restore.listed)  # ListWrapper([])
    v1 = torch.tensor(0.0)
    restore.listed.append(v1)  # restores v1, from the restore above
    assert v1 == 1.0


class Stack(nn.Module):
    """A model that keeps its layers in PyTorch's own containers; lists and dicts hide parameters from PyTorch itself."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(1, 4), nn.Linear(4, 4)])
        self.heads = nn.ModuleDict({"main": nn.Linear(4, 5)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x).relu()
        output: torch.Tensor = self.heads["main"](x)
        return output


# Saving weights


def save_weights(net: nn.Module, path: str) -> None:
    """Saves a model alone, and loads it into one that was never given memory."""
    with torch.device("meta"):
        fresh = type(net)()
    status = milepost.load_weights(fresh, milepost.save_weights(net, path))
    with torch.no_grad():
        assert torch.equal(fresh(INPUTS), net(INPUTS))
    status.assert_consumed()
    print(f"{type(net).__name__}: {len(fresh.state_dict())} weights restored from {path}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs every section."""
    parser = argparse.ArgumentParser(description="The guide to training checkpoints, in PyTorch.")
    parser.add_argument("directory", nargs="?", help="where to write; by default a temporary directory")
    directory = parser.parse_args(arguments).directory or tempfile.mkdtemp()
    os.makedirs(directory, exist_ok=True)
    os.chdir(directory)

    torch.manual_seed(0)
    train_and_checkpoint(*create("./tf_ckpts"))
    checkpoint, manager = create("./tf_ckpts")  # as a new program would make them
    train_and_checkpoint(checkpoint, manager)
    print(manager.checkpoints)  # the three that are left
    print(*sorted(os.listdir("./tf_ckpts")))
    fake_layer, status = load_bias("./tf_ckpts/")
    restore_weight_late(fake_layer)
    status.expect_partial()
    restore_layer_late("./tf_ckpts/")
    inspect("./tf_ckpts/")
    track_lists_and_dicts()
    save_weights(checkpoint.net, "./easy_checkpoint")
    save_weights(Stack(), "./stack_checkpoint")


if __name__ == "__main__":
    main()
