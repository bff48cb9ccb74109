"""The names of the types of plain values, and of lists, dicts and tuples of nothing else, for the object graph."""

from __future__ import annotations

from typing import Final

from milepost.graph.containers import DictWrapper, ListWrapper, OrderedDictWrapper
from milepost.graph.plain_places import PlainNode, StateHolder, holds_state, type_name
from milepost.graph.traversal import LiveGraph

CHECKPOINT: Final = "Checkpoint"
"""For an object that holds plain values as state in its attributes."""

_CONTAINERS: Final[dict[type, str]] = {ListWrapper: "list", DictWrapper: "dict", OrderedDictWrapper: "OrderedDict"}


def type_names(live: LiveGraph) -> dict[int, str]:
    """The name of the type of each node that has one in the object graph.

    Args:
        live: The live objects.
    """
    names: dict[int, str] = {}
    containers: dict[int, str] = {}
    for number, obj in enumerate(live.objects):
        name = type_name(obj)
        if name:
            (containers if type(obj) is PlainNode else names)[number] = name
        elif issubclass(type(obj), StateHolder) and holds_state(obj) and type(obj) is not PlainNode:
            kind = _CONTAINERS.get(type(obj))
            if kind is None:
                names[number] = CHECKPOINT
            elif "_untracked" not in vars(obj):
                containers[number] = kind
    if containers:
        for number in _holding_others(live, names, containers):
            del containers[number]
    return names | containers


def _holding_others(live: LiveGraph, names: dict[int, str], containers: dict[int, str]) -> set[int]:
    """Containers below which there is anything but plain values."""
    parents: dict[int, list[int]] = {}
    found: set[int] = set()
    for number in containers:
        for edge in live.edges[number]:
            if edge.node in containers:
                parents.setdefault(edge.node, []).append(number)
            elif names.get(edge.node, CHECKPOINT) == CHECKPOINT:
                found.add(number)
    reached = list(found)
    for number in reached:
        for parent in parents.get(number, ()):
            if parent not in found:
                found.add(parent)
                reached.append(parent)
    return found
