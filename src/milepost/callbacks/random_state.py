"""The random state that a program has as a whole, as runs of ``fit()`` save it."""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.adapters.random_state import global_state, set_global_state


def random_state() -> dict[str, Any]:
    """All of it, as plain data."""
    return global_state()


def set_random_state(state: dict[str, Any]) -> None:
    """Puts back what `random_state` returned, for those libraries that are there."""
    set_global_state(_from_first_form(state))


def _from_first_form(state: dict[str, Any]) -> dict[str, Any]:
    """State as it was first written: what each library itself returns, and PyTorch's devices beside PyTorch."""
    state = dict(state)
    if isinstance(state["python"], tuple):
        state["python"] = {"state": state["python"]}
    if "torch" in state and not isinstance(state["torch"], dict):
        state["torch"] = {"cpu": np.asarray(state["torch"])}
        if "torch.cuda" in state:
            state["torch"]["cuda"] = [np.asarray(each) for each in state.pop("torch.cuda")]
    return state
