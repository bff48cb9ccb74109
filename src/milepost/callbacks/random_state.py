"""The random state that a program has as a whole: Python's, NumPy's, and PyTorch's where it is used."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np


def random_state() -> dict[str, Any]:
    """All of it, as plain data."""
    state: dict[str, Any] = {"python": random.getstate(), "numpy": np.random.get_state()}
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["torch.cuda"] = list(torch.cuda.get_rng_state_all())
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Puts back what `random_state` returned, for those libraries that are there."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in state:
        torch.set_rng_state(state["torch"])
        if "torch.cuda" in state and torch.cuda.device_count() == len(state["torch.cuda"]):
            torch.cuda.set_rng_state_all(state["torch.cuda"])
