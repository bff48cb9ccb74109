"""Every private name of Flax that milepost uses, with its purpose. Tested with the version in `milepost.adapters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from milepost.adapters.flax.moved import Pytree

# The method that returns what NNX knows of an object, unless its class overrides it.
flatten: Any = Pytree._graph_node_flatten

ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "flax.nnx.Pytree": {
        "_pytree__is_pytree": "whether attributes are marked as data at all",
        "_graph_node_flatten": "whether a class says itself what NNX knows of its objects",
        "_pytree__nodes": "which attributes are data, numbers among them; nothing public says it without flattening",
    },
    "flax.nnx.Variable": {
        "_can_update": "whether the variable may be changed where it is being traced",
        "_trace_state": "the same, in versions that do not have that attribute",
    },
}
"""Private attributes of objects, by class and name, each with its purpose."""
