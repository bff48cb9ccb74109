"""Scans objects again for children for which values are deferred. Objects of most frameworks do not announce new children."""

from __future__ import annotations

from typing import Any

from milepost.deferred.table import ANY, deferred_on, forget_settled, is_anything_deferred, take
from milepost.graph.adapter import adapter_during
from milepost.graph.contract.operation import Operation
from milepost.graph.keys import child_path
from milepost.graph.saved.edges import stand_ins
from milepost.graph.traversal import live_children, walk


def look_again(holder: Any, operation: Operation | None = None) -> list[str]:
    """Restores the deferred values of children and slot variables of an object that exist now.

    Args:
        holder: Any trackable object.
        operation: The operation. It knows the value of the object if that is a place.

    Returns:
        Names of the children that were restored.

    Raises:
        MismatchError: A deferred value does not fit. It stays deferred.
    """
    edges = deferred_on(holder)
    operation = operation or Operation(holder)
    adapter = adapter_during(operation, holder)
    if not edges or adapter is None:
        return []
    has_restored, restored = False, []
    successors = {}
    names = [name for name in edges if isinstance(name, str)]
    others = stand_ins(adapter, holder, names)
    for name, child in [*live_children(operation, adapter, holder), *others.items()]:
        if name in edges or ANY in edges:
            has_restored = True
            if not all(each.superseded or each.is_settled() for each in edges.get(name, ())):
                restored.append(name)
            successor = take(operation, holder, name, child)
            if successor is not child:
                successors[name] = successor
    if successors:
        adapter.replace(holder, successors)
    for key in [key for key in edges if isinstance(key, tuple)]:
        newest = max(edges[key], key=lambda position: position.uid, default=None)
        if newest is None or newest.variable is None:
            continue
        slot = adapter.slot(holder, newest.variable, key[1])
        if slot is None:
            slot = adapter.make_slot(holder, newest.variable, key[1], newest.specs())
        if slot is not None:
            take(operation, holder, key, slot)
            has_restored = True
    if has_restored:
        if "on_restored" in adapter.overrides:
            adapter.on_restored(holder)
        if edges:
            forget_settled(holder)
    return restored


def unannounced_below(operation: Operation) -> list[str]:
    """Paths of children that were not announced, although values are deferred for them.

    Args:
        operation: The operation. All objects below its root are looked at.
    """
    live = walk(operation, slots=False)
    return [
        child_path(live.paths[node], name, is_root=node == 0)
        for node, obj in enumerate(live.objects)
        if (edges := deferred_on(obj))
        for name, _ in live_children(operation, live.adapters[node], obj)
        if not all(each.superseded or each.is_settled() for each in edges.get(name, ()))
    ]


def look_again_below(operation: Operation) -> list[str]:
    """Scans all objects again that can be reached from the root of an operation.

    Args:
        operation: The operation.

    Returns:
        Paths of the objects that were restored, or below which an object was restored.

    Raises:
        MismatchError: A deferred value does not fit. It stays deferred.
    """
    restored: list[str] = []
    again = is_anything_deferred()
    while again:
        live = walk(operation, slots=False)
        paths = [
            child_path(live.paths[node], name, is_root=node == 0)
            for node, obj in enumerate(live.objects)
            if deferred_on(obj)
            for name in look_again(obj, operation)
        ]
        restored += paths
        again = bool(paths)
    return restored
