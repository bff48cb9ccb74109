"""Names of NNX that older versions have elsewhere, or lack."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter, methodcaller
from typing import Any, Final

from flax import nnx

_HAS_METHODS: Final = hasattr(nnx.Variable, "get_raw_value")
"""Variables have methods for what they hold since Flax 0.12.1. Before, what they hold is an attribute."""

graph: Final[Any] = nnx.graphlib if hasattr(nnx, "graphlib") else nnx.graph
"""How NNX takes objects apart, and makes them from their parts."""
StaticElem: Final[Any] = getattr(graph, "StaticElem", None)
"""What marks a static part of a node. Older versions mark none."""
DataElem: Final[Any] = getattr(graph, "DataElem", None)
"""What marks any other part."""
Pytree: Final[Any] = nnx.Pytree if hasattr(nnx, "Pytree") else nnx.Object
"""The class of all nodes."""
List: Final[Any] = getattr(nnx, "List", ())
"""The class of lists of nodes. Before Flax 0.12, they are Python's."""
VARIABLES: Final = tuple(
    each for each in (nnx.Variable, getattr(nnx.variablelib, "HijaxVariable", None)) if each is not None
)
"""The classes of variables."""
raw_value: Final[Any] = methodcaller("get_raw_value") if _HAS_METHODS else attrgetter("raw_value")
"""What a variable holds, without its hooks."""
kind_of: Final[Any] = attrgetter("var_type") if hasattr(nnx.Variable, "var_type") else type
"""The class of a variable, whatever holds its value."""


def set_raw_value(variable: Any, value: Any) -> None:
    """Sets what a variable holds, without its hooks. `can_update` has told that it may be set now."""
    if _HAS_METHODS:
        variable.set_raw_value(value, _unsafe_bypass_check=True)
    else:
        object.__setattr__(variable, "raw_value", value)


def can_update(variable: Any) -> bool:
    """Whether a variable may be changed where it is being traced."""
    return bool(variable._can_update if hasattr(variable, "_can_update") else variable._trace_state.is_valid())


def is_node(value: Any) -> bool:
    """Whether a value is a node of a graph, which is neither a variable nor a reference."""
    return bool(graph.is_node_module(value) if hasattr(graph, "is_node_module") else graph.is_graph_node(value))


def marks_attributes(obj: Any) -> bool:
    """Whether the attributes of a node are marked as data or as settings. Before Flax 0.12, nothing but its state tells."""
    return bool(getattr(type(obj), "_pytree__is_pytree", False))


def marked(obj: Any) -> Mapping[Any, bool]:
    """Which attributes of a node are marked as data. Flax 0.11 has the names of these only."""
    names = vars(obj).get("_pytree__nodes", ()) if getattr(type(obj), "_pytree__is_pytree", True) else ()
    return names if isinstance(names, Mapping) else dict.fromkeys(names, True)
