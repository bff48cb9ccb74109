"""A small training that saves, restores, prunes and resumes, for a process that `bare_system` has taken functions from.

::

    python -m tests.portability.training DIRECTORY begin     saves ten checkpoints, keeps three, and is killed in the middle of one
    python -m tests.portability.training DIRECTORY resume    goes on from the newest, and prints what it found
"""

from __future__ import annotations

import json
import os
import sys

import tests.portability.bare_system  # noqa: F401  # before milepost is imported

# isort: split

import numpy as np

import milepost
from milepost.storage import LocalStorage

_ROWS = 1000


def values(step: int) -> np.ndarray:
    return np.arange(_ROWS, dtype=np.float32) * step


class Killed(LocalStorage):
    """Ends the process, as a kill would, when the index of one checkpoint is about to become visible."""

    def rename(self, source: str, target: str) -> None:
        if target.endswith("ckpt-11.index"):
            sys.stdout.flush()
            os._exit(9)
        super().rename(source, target)


class Training(milepost.Checkpoint):
    step: milepost.Variable
    weights: milepost.Variable
    text: milepost.Variable
    history: list[int]


def training() -> Training:
    return Training(
        step=milepost.Variable(0),
        weights=milepost.Variable(values(0)),
        history=[],
        name="a run",
        text=milepost.Variable(""),
    )


def begin(directory: str) -> None:
    own = training()
    options = milepost.CheckpointOptions(storage=Killed(), enable_async=True)
    manager = milepost.CheckpointManager(own, directory, max_to_keep=3, options=options)
    assert manager.restore_or_initialize() is None
    for step in range(1, 12):
        own.step.assign(step)
        own.weights.assign(values(step))
        own.text.assign(f"step {step}")
        own.history.append(step)
        manager.save()
    own.sync()


def resume(directory: str) -> None:
    own = training()
    manager = milepost.CheckpointManager(own, directory, max_to_keep=3)
    restored = manager.restore_or_initialize()
    assert restored is not None
    assert np.array_equal(own.weights.numpy(), values(int(own.step)))
    late = Training()
    status = late.read(restored)  # holds the files open
    own.step.assign_add(1)
    saved = [manager.save() for _ in range(4)]
    late.weights = milepost.Variable(np.zeros(_ROWS, np.float32))
    status.expect_partial()
    path = os.path.join(directory, "best")
    for number in range(3):
        written = milepost.Checkpoint(v=milepost.Variable(number)).write(path)
    best = int(milepost.load_variable(written, "v/.ATTRIBUTES/VARIABLE_VALUE"))
    found = {
        "restored": os.path.basename(restored),
        "history": list(own.history),
        "late": bool(np.array_equal(late.weights.numpy(), values(int(own.step) - 1))),
        "saved": [os.path.basename(path) for path in saved if path],
        "latest": os.path.basename(milepost.latest_checkpoint(directory) or ""),
        "best": best,
        "files": sorted(os.listdir(directory)),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    {"begin": begin, "resume": resume}[sys.argv[2]](sys.argv[1])
