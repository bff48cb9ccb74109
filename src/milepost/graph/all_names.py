"""The names of saved objects that have several, as tied weights have.

An edge gives its child another name if a framework lists it under both, and so would load it under both: ``state_dict()`` of PyTorch, and
the members of lists and dicts. Keras and TensorFlow have several edges to one object, and list it once. So the object says which it is,
with the hint ``names`` (`milepost.graph.hints`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import numpy as np

from milepost.errors import UnsupportedError
from milepost.graph.contract.values import Array
from milepost.graph.hints import decode
from milepost.graph.keys import child_path
from milepost.graph.nodes import Edge, Node
from milepost.graph.object_graph import ObjectGraph

_NAMES: Final = "names"
NAMED: Final[Mapping[str, Array]] = {_NAMES: np.array(True)}
"""The hint of an object that lists a child under the name of each edge that leads to it."""
_MOST: Final = 1 << 20
"""The most names of all objects together. A graph can have more than any file has bytes."""


def other_names(graph: ObjectGraph) -> dict[int, list[str]]:
    """The paths of objects that have more than one, by number. The shortest, which is in keys, is not among them.

    Raises:
        UnsupportedError: There are too many.
    """
    edges, has_others = _edges(graph)
    if not has_others:
        return {}
    found: dict[int, list[str]] = {}
    count = 0
    pending = deque([(0, "", frozenset([0]))])
    while pending:
        number, path, above = pending.popleft()
        for name, child in edges[number]:
            if child in above:
                continue
            count += 1
            if count > _MOST:
                raise UnsupportedError(
                    "the objects of this checkpoint have too many names",
                    expected=f"at most {_MOST} names",
                    remedy="select a part of the checkpoint with only",
                )
            below = child_path(path, name, is_root=not number)
            found.setdefault(child, []).append(below)
            pending.append((child, below, above | {child}))
    return {number: paths[1:] for number, paths in found.items() if len(paths) > 1}


def _edges(graph: ObjectGraph) -> tuple[list[list[Edge]], bool]:
    """The edges of each node that give names, and whether any object has several names."""
    edges: list[list[Edge]] = [[] for _ in graph.nodes]
    seen, pending, has_others = {0}, deque([0]), False
    while pending:
        number = pending.popleft()
        node = graph.nodes[number]
        is_list: bool | None = None
        for edge in node.children:
            if edge.node not in seen:
                seen.add(edge.node)
                pending.append(edge.node)
            else:
                is_list = lists_all(node) if is_list is None else is_list
                if not is_list:
                    continue
                has_others = True
            edges[number].append(edge)
    return edges, has_others


def lists_all(node: Node) -> bool:
    """Whether an object lists a child under the name of each edge. Of objects with children, only lists, dicts, tuples and a `Checkpoint` have a
    type in the file."""
    return bool(node.python) or loads_all(node)


def loads_all(node: Node) -> bool:
    """Whether the framework loads a value into the child of each name, also if these have become different objects."""
    return bool(node.hints) and _NAMES in decode(node.hints)
