"""Names of types in the object graph: of plain values, of arrays, and of lists, dicts and tuples of only these."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, Final

from milepost.graph.adapter import adapter_of_type
from milepost.graph.containers import DictWrapper, ListWrapper, OrderedDictWrapper
from milepost.graph.live_graph import LiveGraph
from milepost.graph.plain.places import PlainLeaf, PlainNode, holds_state
from milepost.graph.plain.values import TYPE_NAMES
from milepost.graph.trees.places import CheckedLeaf, Leaf, Place, TreeNode
from milepost.graph.trees.structure import is_tuple, members, named_tuple_name

CHECKPOINT: Final = "Checkpoint"
"""The name for an object that holds plain values as state in its attributes."""

_OF_OTHERS: Final = ("", CHECKPOINT)
"""The names of objects that are neither plain values nor arrays."""
_LEAVES: Final = (PlainLeaf, CheckedLeaf)
"""The types of places of plain values. Arrays without dimensions have such a place too."""
_PLACES_OF_ARRAYS: Final = (Leaf, CheckedLeaf)
_WRAPPERS: Final[dict[type, str]] = {ListWrapper: "list", DictWrapper: "dict", OrderedDictWrapper: "OrderedDict"}
_OF_TREES: Final[dict[type, str]] = {list: "list", dict: "dict", tuple: "tuple"}
_ONE_EDGE_EACH: Final = frozenset({list, dict, tuple, ListWrapper})
"""Types of containers in which each member has one edge of its own."""


def type_names(live: LiveGraph, held: Mapping[Place, Any]) -> list[str]:
    """The name of the type of each node, as the object graph holds it. It is empty for most nodes.

    Args:
        live: The live objects.
        held: The values of places among them.
    """
    names = [""] * len(live.objects)
    holders: list[int] = []
    lists: list[int] = []
    any_container = False
    for number, (obj, adapter) in enumerate(zip(live.objects, live.adapters, strict=True)):
        kind = type(obj)
        if adapter.leaf:
            if kind in _LEAVES:
                names[number] = TYPE_NAMES.get(type(held[obj]), "")
            continue
        any_container = any_container or issubclass(kind, (list, dict, tuple, TreeNode))
        if holds_state(obj):
            holders.append(number)
            if kind is not PlainNode and kind not in _WRAPPERS:
                names[number] = CHECKPOINT
        elif kind is ListWrapper:
            lists.append(number)
    containers = _containers_below(live, held, [*holders, *lists]) if any_container else {}
    arrays = _array_types(live, held, {*holders, *containers})
    others = _holding_others(live, names, arrays, containers)
    for number in others:
        del containers[number]
    if others:
        members_left = {node for holder in {*holders, *containers} for _, node in live.edges[holder]}
        arrays = {number: name for number, name in arrays.items() if number in members_left}
    for number, name in itertools.chain(containers.items(), arrays.items()):
        names[number] = name
    return names


def _containers_below(live: LiveGraph, held: Mapping[Place, Any], holders: Sequence[int]) -> dict[int, str]:
    """Lists, dicts and tuples that are reached from these objects only through each other, with the names of their types."""
    names: dict[int, str] = {}
    seen = set(holders)
    reached = list(holders)
    for number in reached:
        container = _container(live.objects[number], held)
        name = _container_type(container)
        if name and len({edge_name for edge_name, _ in live.edges[number]}) == _edges_of(container):
            names[number] = name
        for _, node in live.edges[number]:
            if (
                not live.adapters[node].leaf
                and node not in seen
                and _container_type(_container(live.objects[node], held))
            ):
                seen.add(node)
                reached.append(node)
    return names


def _container(obj: Any, held: Mapping[Place, Any]) -> Any:
    return held[obj] if isinstance(obj, TreeNode) else obj


def _container_type(container: Any) -> str:
    kind = type(container)
    if kind in _WRAPPERS:
        return "" if "_untracked" in vars(container) else _WRAPPERS[kind]
    if hasattr(kind, "_fields") and is_tuple(kind):
        return named_tuple_name(kind)
    return _OF_TREES.get(kind, "")


def _edges_of(container: Any) -> int:
    """The number of edges that a container has if all its members are saved."""
    if type(container) in _ONE_EDGE_EACH:
        return len(container)
    if type(container) in _WRAPPERS:
        return len([key for key in container if isinstance(key, str)])
    return len({name for names, _, _ in members(container) for name in names})


def _array_types(live: LiveGraph, held: Mapping[Place, Any], holders: Iterable[int]) -> dict[int, str]:
    names: dict[int, str] = {}
    objects, adapters = live.objects, live.adapters
    for holder in holders:
        for _, node in live.edges[holder]:
            adapter = adapters[node]
            if adapter.leaf and node not in names:
                obj = objects[node]
                if type(obj) in _PLACES_OF_ARRAYS:
                    obj = held[obj]
                    adapter = adapter_of_type(type(obj)) or adapter
                if adapter.array_type and adapter.is_new_array(obj):
                    names[node] = adapter.array_type
    return names


def _holding_others(
    live: LiveGraph, names: Sequence[str], arrays: Container[int], containers: Collection[int]
) -> set[int]:
    """Containers below which there are other objects than plain values, which have names, and arrays."""
    parents: dict[int, list[int]] = {}
    others: set[int] = set()
    for number in containers:
        for _, node in live.edges[number]:
            if node in containers:
                parents.setdefault(node, []).append(number)
            elif node not in arrays and names[node] in _OF_OTHERS:
                others.add(number)
    reached = list(others)
    for number in reached:
        for parent in parents.get(number, ()):
            if parent not in others:
                others.add(parent)
                reached.append(parent)
    return others
