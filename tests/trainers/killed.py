"""A run of one of the trainers, as a process that tests kill: python -m tests.trainers.killed TRAINER DIRECTORY RESULT."""

from __future__ import annotations

import os
import sys

import torch

TRAINERS = {
    "lightning": "lightning.pytorch",
    "transformers": "transformers.trainer",
    "accelerate": "accelerate",
    "ignite": "ignite.engine",
}
"""The trainers, each with its module."""


def trained(trainer, directory):
    """The model after a run. It is saved after each step, and a run in a directory with checkpoints goes on from them."""
    if trainer == "lightning":
        from tests.trainers.lightning_runs import fit

        return fit(directory, epochs=8)[0]
    if trainer == "transformers":
        from tests.trainers.test_transformers import train

        return train(directory)[0]
    if trainer == "accelerate":
        from tests.trainers.test_accelerate import train

        return train(directory)[0]
    from tests.trainers.test_ignite import run

    return run(directory, epochs=8)[0]


if __name__ == "__main__":
    torch.save(trained(sys.argv[1], sys.argv[2]).state_dict(), f"{sys.argv[3]}.tmp")
    os.replace(f"{sys.argv[3]}.tmp", sys.argv[3])
