"""The names of saved objects that have several, as tied weights have.

An edge gives its child another name if a framework lists it under both, and so would load it under both: ``state_dict()`` of PyTorch, and
the members of lists and dicts. Keras and TensorFlow have several edges to one object, and list it once. So the object says which it is,
with the hint ``names`` (`milepost.graph.saved.hints`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final

import numpy as np

from milepost.errors import UnsupportedError
from milepost.graph.contract.values import Array
from milepost.graph.keys import child_path
from milepost.graph.saved.hints import decode
from milepost.graph.saved.nodes import Edge, Node
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.graph.trees.structure import NAMED_TUPLE

_NAMES: Final = "names"
NAMED: Final[Mapping[str, Array]] = {_NAMES: np.array(True)}
_VERSION: Final = "version"
_LAZY: Final = "lazy"
_UNLISTED: Final = "unlisted"
_REMOVED: Final = "removed"
_MOST: Final = 1 << 20
"""The most names of all objects together. A graph can have more than any file has bytes."""


def all_names(graph: ObjectGraph) -> dict[int, list[str]]:
    """The paths of all objects, by number. The first is the shortest, which is in keys.

    Raises:
        UnsupportedError: There are too many.
    """
    edges = _edges(graph)
    paths: dict[int, list[str]] = {0: [""]}
    count = 0
    pending = deque([(0, "", frozenset([0]))])
    while pending:
        number, path, above = pending.popleft()
        for name, child in edges[number]:
            if child in above:
                continue
            count += 1
            if count > _MOST + len(edges):
                raise _too_many()
            below = child_path(path, name, is_root=not number)
            paths.setdefault(child, []).append(below)
            pending.append((child, below, above | {child} if edges[child] else above))
    return paths


def named(
    version: int | None, lazy: Sequence[str] = (), unlisted: Sequence[str] = (), removed: Sequence[str] = ()
) -> Mapping[str, Array]:
    """The hint of an object that lists a child under the name of each edge that leads to it.

    Args:
        version: The version of its class, which PyTorch has in the ``_metadata`` of a state dict. 1 is not written.
        lazy: The names of its parameters and buffers that have no values yet.
        unlisted: The names of its children that the framework does not list, such as modules that PyTorch has not registered.
        removed: The names, joined by dots, that lead from it to values which its own ``state_dict()`` leaves out.
    """
    hints = NAMED if version in (None, 1) else {**NAMED, _VERSION: np.array(version)}
    names = {_LAZY: lazy, _UNLISTED: unlisted, _REMOVED: removed}
    return {**hints, **{hint: np.array("\n".join(each)) for hint, each in names.items() if each}}


def lazy_names(node: Node) -> list[str]:
    """The names of the parameters and buffers of a module that had no values when it was saved."""
    present = {edge.name for edge in node.children}
    return [name for name in _noted(node, _LAZY) if name not in present]


def only_listed(graph: ObjectGraph, paths: Mapping[int, list[str]]) -> Mapping[int, list[str]]:
    """The paths of objects without those that a framework does not list.

    A path through a child that an object does not list is left out if there are others. A value that the ``state_dict()`` of an object around
    it leaves out has no path.

    Args:
        graph: The object graph.
        paths: What `all_names` has returned.
    """
    unlisted = _paths_below(graph, paths, lambda node: [[name] for name in unlisted_names(node)])
    removed = _paths_below(graph, paths, removed_names)
    if unlisted:
        paths = {number: _not_below(unlisted, named) or named for number, named in paths.items()}
    return {number: _not_below(removed, named) for number, named in paths.items()} if removed else paths


def unlisted_names(node: Node) -> list[str]:
    """The names of the children that an object has and does not list."""
    return _noted(node, _UNLISTED)


def removed_names(node: Node) -> list[list[str]]:
    """The names that lead from an object to each value which its own ``state_dict()`` leaves out."""
    return [each.split(".") for each in _noted(node, _REMOVED)]


def _paths_below(
    graph: ObjectGraph, paths: Mapping[int, list[str]], names_below: Callable[[Node], list[list[str]]]
) -> set[str]:
    """The paths of what is below objects under names that `names_below` gives for each object."""
    paths_below = set()
    for number, named in paths.items():
        for names in names_below(graph.nodes[number]):
            for path in named:
                for name in names:
                    path = child_path(path, name, is_root=not path)
                paths_below.add(path)
        if len(paths_below) > _MOST + len(graph.nodes):
            raise _too_many()
    return paths_below


def _not_below(above: Set[str], paths: list[str]) -> list[str]:
    """Those of these paths that are not in a set and not below one in it."""

    def is_outside(path: str) -> bool:
        steps = path.split("/")
        return above.isdisjoint("/".join(steps[:count]) for count in range(1, len(steps) + 1))

    return [*filter(is_outside, paths)]


def _too_many() -> UnsupportedError:
    return UnsupportedError(
        "the objects of this checkpoint have too many names",
        expected=f"at most {_MOST} names more than objects",
        remedy="select a part of the checkpoint with only",
    )


def _noted(node: Node, hint: str) -> list[str]:
    """The names in a hint of an object."""
    value = decode(node.hints).get(hint) if hint in node.hints else None
    return [] if value is None or value.ndim or value.dtype.kind != "U" else str(value).split("\n")


def is_named(hints: Mapping[str, Array]) -> bool:
    """Whether these are the hints of such an object."""
    return _NAMES in hints


def version_of(node: Node) -> int | None:
    """The version of the class of an object; None if it has none, because it is no module."""
    if not loads_all(node):
        return None
    version = decode(node.hints).get(_VERSION)
    return 1 if version is None or version.dtype != np.int64 or version.ndim else int(version)


def _edges(graph: ObjectGraph) -> list[list[Edge]]:
    """The edges of each node that give names."""
    edges: list[list[Edge]] = [[] for _ in graph.nodes]
    seen, pending = {0}, deque([0])
    while pending:
        number = pending.popleft()
        node = graph.nodes[number]
        is_list: bool | None = None
        is_named_tuple = node.python.startswith(NAMED_TUPLE)
        for edge in node.children:
            if is_named_tuple and edge.name.isdecimal():
                continue  # the position of a field, which has a name
            if edge.node not in seen:
                seen.add(edge.node)
                pending.append(edge.node)
            else:
                is_list = lists_all(node) if is_list is None else is_list
                if not is_list:
                    continue
            edges[number].append(edge)
    return edges


def lists_all(node: Node) -> bool:
    """Whether an object lists a child under the name of each edge. Of objects with children, only lists, dicts, tuples and a `Checkpoint` have a
    type in the file."""
    return bool(node.python) or loads_all(node)


def loads_all(node: Node) -> bool:
    """Whether the framework loads a value into the child of each name, also if these have become different objects."""
    return bool(node.hints) and is_named(decode(node.hints))
