"""Runs with a manager, and what they leave behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from milepost import Checkpoint, CheckpointManager, Variable

_SIZE = 100


def new(value: float = 0.0) -> Any:
    """A checkpoint of one array, all of whose elements are this value."""
    return Checkpoint(v=Variable(np.full(_SIZE, value)))


def value(checkpoint: Any) -> float:
    """The value of such a checkpoint."""
    return float(np.asarray(checkpoint.v)[0])


def run(directory: Any, saves: int, keep: int | None = None, **arguments: Any) -> CheckpointManager[Any]:
    """The manager of a run that begins anew and saves the values 1, 2, ..."""
    manager = CheckpointManager(new(), directory, keep, **arguments)
    for number in range(1, saves + 1):
        manager.checkpoint.v.assign(np.full(_SIZE, float(number)))
        manager.save()
    return manager


def indexes(directory: Path) -> list[str]:
    """Names of the checkpoints in a directory."""
    return sorted(path.name.removesuffix(".index") for path in directory.glob("*.index"))
