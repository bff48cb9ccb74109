"""Restores a model of 128 MiB: ``python -m tests.adapters.flax.memory PREFIX live|abstract`` prints the MiB it took."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
from flax import nnx

import milepost

LAYERS, SIZE = 32, 1024
STATE = LAYERS * SIZE * SIZE * 4 / 2**20


class Net(nnx.Module):
    def __init__(self, rngs):
        ones = nnx.initializers.ones
        self.layers = nnx.List(
            [nnx.Linear(SIZE, SIZE, use_bias=False, kernel_init=ones, rngs=rngs) for _ in range(LAYERS)]
        )


def make():
    return Net(nnx.Rngs(0))


def _mebibytes(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def main(prefix, how):
    net = nnx.eval_shape(make) if how == "abstract" else make()
    jax.block_until_ready(jax.tree.leaves(nnx.state(net)) if how == "live" else 0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = _mebibytes("VmRSS")
    milepost.Checkpoint(net=net).read(prefix).assert_consumed()
    print(_mebibytes("VmHWM") - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
