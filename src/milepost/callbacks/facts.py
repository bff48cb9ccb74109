"""What a run of ``fit()`` consists of beside objects: logs, history, random state, the place in the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.callbacks.nested import from_json, to_json
from milepost.checkpoint import Checkpoint
from milepost.engine.options import CheckpointOptions
from milepost.graph import PythonState, Variable


class Facts(PythonState):
    """These things as plain data, saved as one text."""

    def __init__(self) -> None:
        self.now: dict[str, Any] = {}

    def serialize(self) -> str:
        return to_json(self.now, "fit")

    def deserialize(self, string_value: str) -> None:
        self.now = from_json(string_value)


def facts_in(path: str, options: CheckpointOptions) -> tuple[dict[str, Any], int]:
    """What a checkpoint says of its run, and the epoch at which it was saved; nothing else is restored."""
    facts, epoch = Facts(), Variable(np.int64(0))
    Checkpoint(fit=facts, epoch=epoch).read(path, options).expect_partial()
    return facts.now, int(epoch)
