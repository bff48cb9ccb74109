"""Saves a model and its Adam, and restores them: ``python -m tests.adapters.torch.memory DIRECTORY`` prints JSON.

For each way to restore, the MiB that had to be there and the MiB that were taken at most, beside what was there before.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import torch

import milepost

LAYERS, SIZE = 16, 1672
PARAMETERS = LAYERS * SIZE * SIZE * 4 / 2**20
"""MiB; with the two averages that Adam keeps it is three times that."""


def make(device="cpu"):
    with torch.device(device):
        net = torch.nn.Sequential(*(torch.nn.Linear(SIZE, SIZE, bias=False) for _ in range(LAYERS)))
        return net, torch.optim.Adam(net.parameters(), lr=0.5, foreach=False)


def step(net, optimizer):
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad()


def fill(net, value):
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(value)


def trained():
    net, optimizer = make()
    fill(net, 3.0)
    step(net, optimizer)
    return net, optimizer


WAYS = {
    "in place": (trained, 0),
    "a new optimizer": (make, 2),
    "on the meta device": (lambda: make("meta"), 3),
}


def mebibytes(name):
    gc.collect()
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def restore(path, create):
    net, optimizer = create()
    checkpoint = milepost.Checkpoint(net=net, optimizer=optimizer)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = mebibytes("VmRSS")
    checkpoint.read(path).assert_consumed()
    taken = mebibytes("VmHWM") - before
    for parameter in net.parameters():
        assert parameter[-1, -1].item() == 2.0 - 0.5
        assert abs(optimizer.state[parameter]["exp_avg"][-1, -1].item() - 0.1) < 1e-6
    return taken


def main(directory):
    torch.set_num_threads(1)
    net, optimizer = make()
    fill(net, 2.0)
    step(net, optimizer)
    path = milepost.Checkpoint(net=net, optimizer=optimizer).write(Path(directory, "c"))
    net = optimizer = None
    found = {way: (parts * PARAMETERS, restore(path, create)) for way, (create, parts) in WAYS.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
