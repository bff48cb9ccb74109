"""State as plain data: as one text that includes arrays (see `milepost.plain_state.encoding`), and the random state of a program."""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.adapters.random_state import global_state, set_global_state
from milepost.plain_state.decoding import from_text
from milepost.plain_state.encoding import store_inline, to_text


def to_json(value: Any, key: str) -> str:
    """Writes nested state as JSON.

    Args:
        value: The state.
        key: The name of the state in errors.

    Raises:
        UnsupportedError: Something in the state is not plain data.

    Example:
        >>> from_json(to_json({"position": (3, b"ab")}, "reader"))
        {'position': (3, b'ab')}
    """
    return to_text(value, key, store_inline)


def from_json(text: str) -> Any:
    """The state from which `to_json` made a text.

    Raises:
        CorruptCheckpointError: The text is not from `to_json`.
    """
    return from_text(text, {})


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
