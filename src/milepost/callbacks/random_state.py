"""The global random state of a program, for runs of ``fit()``."""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.adapters.random_state import global_state, set_global_state


def random_state() -> dict[str, Any]:
    """The random state, as plain data."""
    return global_state()


def set_random_state(state: dict[str, Any]) -> None:
    """Restores the result of `random_state`, for the libraries that are imported."""
    set_global_state(_from_first_form(state))


def _from_first_form(state: dict[str, Any]) -> dict[str, Any]:
    """Converts the first format: the state that each library returns, with entries for PyTorch and for its devices."""
    state = dict(state)
    if isinstance(state["python"], tuple):
        state["python"] = {"state": state["python"]}
    if "torch" in state and not isinstance(state["torch"], dict):
        state["torch"] = {"cpu": np.asarray(state["torch"])}
        if "torch.cuda" in state:
            state["torch"]["cuda"] = [np.asarray(each) for each in state.pop("torch.cuda")]
    return state
