"""Hyperparameters of PyTorch optimizers as arrays, for checkpoints and for PyTorch's own files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from milepost.graph.adapter import Array

NO_STATE: Final = frozenset({"params", "param_names", "fused", "foreach", "capturable", "differentiable"})
"""Members of a parameter group that are not state: its parameters, and how a step is computed."""
STRIDES: Final = "strides"
"""The hint with the strides of a tensor, in elements."""
EMPTY: Final = "{}"
"""The name of the slot variable that stands for the state of a parameter that is an empty dict."""
PLAIN_SETTINGS: Final = (bool, int, float, str, type(None))
"""The types of hyperparameters that a class of optimizers may set itself."""
_INT64: Final = range(-(1 << 63), 1 << 63)


def as_setting(value: Any) -> Array | None:
    """A number as an array without dimensions, a tuple of floats as a vector; None for anything else."""
    if type(value) in (bool, float) or (type(value) is int and value in _INT64):
        return np.asarray(value)
    if type(value) is tuple and value and all(type(each) is float for each in value):
        return np.array(value)
    return None


def as_loaded(optimizer: Any, group: Mapping[str, Any]) -> Mapping[str, Any]:
    """A parameter group as ``load_state_dict`` of the optimizer's class leaves it: with defaults for what it lacks, and with what the class always has.

    Args:
        optimizer: The optimizer. It is not changed.
        group: The hyperparameters of a group.

    Returns:
        The group without its parameters. Other values than those of `PLAIN_SETTINGS` are None.
    """
    tried = {name: value if type(value) in PLAIN_SETTINGS else None for name, value in group.items()}
    tried["params"] = []
    try:
        probe: Any = object.__new__(type(optimizer))
        probe.__dict__["defaults"] = dict(optimizer.defaults)
        probe.__setstate__({"state": {}, "param_groups": [tried]})
    except Exception:  # the class may expect anything of its objects
        return {}
    return tried
