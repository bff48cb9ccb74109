"""The variable inside one that Keras or a strategy has wrapped, and whether its value is in a session."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def unwrapped(variable: Any) -> Any:
    """The variable inside one that Keras has wrapped to cast it, or a strategy to aggregate its updates."""
    while True:
        if hasattr(variable, "true_dtype") and hasattr(variable, "_variable"):
            variable = variable._variable
        elif isinstance(getattr(variable, "_v", None), tf.Variable):
            variable = variable._v
        else:
            return variable


def is_of_session(variable: Any) -> bool:
    """Whether the variable belongs to a graph, so that its value is in a session."""
    first = getattr(variable, "_primary", variable)
    return bool(getattr(first, "_in_graph_mode", not hasattr(first, "handle")))
