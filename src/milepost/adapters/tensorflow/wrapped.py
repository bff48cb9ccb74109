"""What is inside of a variable that something else has wrapped, and whether only a session knows its value."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def unwrapped(variable: Any) -> Any:
    """The variable itself, where Keras has wrapped it to read as another type, or a strategy to be updated elsewhere."""
    while True:
        if hasattr(variable, "true_dtype") and hasattr(variable, "_variable"):
            variable = variable._variable
        elif isinstance(getattr(variable, "_v", None), tf.Variable):
            variable = variable._v
        else:
            return variable


def is_of_session(variable: Any) -> bool:
    """Whether the variable belongs to a graph, so that only a session knows its value."""
    first = getattr(variable, "_primary", variable)
    return bool(getattr(first, "_in_graph_mode", not hasattr(first, "handle")))
