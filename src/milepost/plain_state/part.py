"""Nodes of the object graph that are plain state, with the tensors that `pack` returns: objects whose state is plain data, and parts of a tree of
values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from milepost.graph.adapter import Adapter, Array, Value, register
from milepost.graph.keys import STATE_DICT
from milepost.graph.saved.all_names import version_of
from milepost.graph.saved.hints import decode
from milepost.graph.saved.nodes import Node
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.plain_state.encoding import pack
from milepost.tensor import DType, TensorSpec

PLAIN_PART: Final = "milepost.plain_state"
"""The name of the type in the object graph. With it, all members of a list or dict are known even if one of them is such a part."""
_STATE: Final = "state"
IS_STATE: Final[Mapping[str, Array]] = {_STATE: np.array(True)}
"""The hint of an object whose state is plain data."""


def is_state_of_object(node: Node) -> bool:
    """Whether a saved object has plain data as its state."""
    return bool(node.hints) and _STATE in decode(node.hints)


def is_plain_state(node: Node) -> bool:
    """Whether the values of a saved object are what `pack` returned."""
    return node.python == PLAIN_PART or is_state_of_object(node)


def accounts_in(graph: ObjectGraph) -> frozenset[int]:
    """The nodes of what modules of PyTorch have added to their ``state_dict()``."""
    return frozenset(
        edge.node
        for _, node in graph.inner
        for edge in node.children
        if edge.name == STATE_DICT and version_of(node) is not None and is_state_of_object(graph.nodes[edge.node])
    )


class PlainPart:
    """A part of a tree.

    Args:
        value: What `milepost.plain_state.encoding.pack` takes.
    """

    def __init__(self, value: Any) -> None:
        self.value = value


class PlainPartAdapter(Adapter):
    """`PlainPart`. A tree is loaded as a whole, so nothing is restored into one."""

    leaf = True
    array_type = PLAIN_PART

    def handles(self, kind: type) -> bool:
        return kind is PlainPart

    def values(self, obj: PlainPart) -> Sequence[Value]:
        return [Value(name, DType.of(array), array.shape, array) for name, array in pack(obj.value).items()]

    def is_new_array(self, obj: Any) -> bool:
        return True

    def new_array(self, spec: TensorSpec, hints: Mapping[str, Array]) -> None:
        return None


register(PlainPartAdapter())
