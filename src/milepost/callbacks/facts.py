"""The part of a run of ``fit()`` that is saved as plain data: logs, history, random state, the position in the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.callbacks.nested import from_json, to_json
from milepost.checkpoint.checkpoint import Checkpoint
from milepost.engine.options import CheckpointOptions
from milepost.graph import PythonState, Variable


class Facts(PythonState):
    """This part of a run, saved as one text."""

    def __init__(self) -> None:
        self.now: dict[str, Any] = {}

    def serialize(self) -> str:
        return to_json(self.now, "fit")

    def deserialize(self, string_value: str) -> None:
        self.now = from_json(string_value)


def facts_in(path: str, options: CheckpointOptions) -> tuple[dict[str, Any], int]:
    """The facts in a checkpoint, and the epoch at which it was saved. Nothing else is restored."""
    facts, epoch = Facts(), Variable(np.int64(0))
    Checkpoint(fit=facts, epoch=epoch).read(path, options).expect_partial()
    return facts.now, int(epoch)
