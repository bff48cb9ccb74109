"""Lightning's own dict of a run, in checkpoints of milepost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milepost.trainers.paths import not_of, read_path

RUN = "trainer"
"""The member of the states of `milepost.lightning.CheckpointCallback` that is Lightning's own dict."""


def read_dict(path: str) -> dict[str, Any]:
    """The dict of Lightning that is saved under a path, by the plugin or by the callback.

    Raises:
        CheckpointNotFoundError: There is no checkpoint. This is a ``FileNotFoundError``.
        CorruptCheckpointError: It is damaged, or holds something else.
    """
    state = read_path(path)
    if isinstance(state, dict) and "state_dict" not in state:
        state = state.get(RUN)
    if not isinstance(state, dict) or "state_dict" not in state:
        raise not_of("Lightning", path)
    return state


def moved(state: Any, move: Callable[[Any], Any]) -> Any:
    """The same nested dicts, lists and tuples with each tensor moved."""
    if isinstance(state, dict):
        for name in state:
            state[name] = moved(state[name], move)
        return state
    if type(state) is list:
        return [moved(each, move) for each in state]
    if type(state) is tuple:
        return tuple(moved(each, move) for each in state)
    return move(state) if hasattr(state, "untyped_storage") else state
