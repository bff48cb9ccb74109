"""Hyperparameters of PyTorch optimizers as arrays, for checkpoints and for PyTorch's own files."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from milepost.graph.adapter import Array

NO_STATE: Final = frozenset({"params", "param_names", "fused", "foreach", "capturable", "differentiable"})
"""Members of a parameter group that are not state: its parameters, and how a step is computed."""
STRIDES: Final = "strides"
"""The hint with the strides of a tensor, in elements."""
EMPTY: Final = "{}"
"""The name of the slot variable that stands for the state of a parameter that is an empty dict."""
_INT64: Final = range(-(1 << 63), 1 << 63)


def as_setting(value: Any) -> Array | None:
    """A number as an array without dimensions, a tuple of floats as a vector; None for anything else."""
    if type(value) in (bool, float) or (type(value) is int and value in _INT64):
        return np.asarray(value)
    if type(value) is tuple and value and all(type(each) is float for each in value):
        return np.array(value)
    return None
