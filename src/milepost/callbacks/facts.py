"""The part of a run of ``fit()`` that is saved as plain data: logs, history, random state, the position in the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.callbacks.plain_data import from_json, to_json
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


def history_of(model: Any, finished: tuple[int, dict[str, Any]] | None) -> dict[str, Any]:
    """The history of a model, as plain data.

    Args:
        model: The model that is trained.
        finished: The epoch that has ended, and its logs, which Keras' own callback may not have recorded yet.
    """
    history = model.history
    epochs = list(history.epoch)
    values = {name: [number(each) for each in column] for name, column in history.history.items()}
    if finished is not None and finished[0] not in epochs:
        epochs.append(finished[0])
        for name, value in finished[1].items():
            values.setdefault(name, []).append(number(value))
    return {"epochs": epochs, "values": values}


def give_back_history(model: Any, saved: dict[str, Any]) -> None:
    """Restores the history that `history_of` returned."""
    history = model.history
    history.epoch[:] = saved["epochs"]
    history.history.clear()
    history.history.update(saved["values"])


def number(value: Any) -> Any:
    """A logged value as a Python number, which JSON keeps exactly."""
    if isinstance(value, dict):
        return {name: number(each) for name, each in value.items()}
    array = np.asarray(value)
    return array.item() if array.ndim == 0 else array
