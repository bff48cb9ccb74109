"""The history of a run, which ``fit()`` returns: all epochs of all processes."""

from __future__ import annotations

from typing import Any

import numpy as np


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
