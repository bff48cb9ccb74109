"""Replaces the leaves of trees of values that never change. There is no recursion, so trees may have any depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from milepost.graph.trees.places import TreeNode, kind_of_place
from milepost.graph.trees.structure import Member, has_no_end, members, with_members


def with_leaves(tree: Any, change: Callable[[Any], Any], *, keep_refused: bool = False) -> Any:
    """A copy of a tree with other leaves.

    Args:
        tree: The tree. It does not change. Containers without changes are shared by both trees.
        change: Returns the new leaf for an old one. All objects are leaves except containers that hold a value.
        keep_refused: Whether a container keeps its old leaves if its class raises an error for the new ones. A class may take
            arrays only.

    Raises:
        UntrackableError: A container holds itself.
        Exception: What the class of a container raises for its new leaves, unless it keeps its old ones.

    Example:
        >>> with_leaves({"text": "a", "numbers": [1, 2]}, lambda leaf: 0)
        {'text': 0, 'numbers': [0, 0]}
    """
    if not _has_members(tree):
        return change(tree)
    above: list[tuple[Any, Any, Iterator[Member], dict[Any, Any]]] = [(None, tree, iter(members(tree)), {})]
    on_the_way = {id(tree)}
    while True:
        key, container, left, changes = above[-1]
        for _, member, child in left:
            if _has_members(child):
                if id(child) in on_the_way:
                    raise has_no_end()
                on_the_way.add(id(child))
                above.append((member, child, iter(members(child)), {}))
                break
            new = change(child)
            if new is not child:
                changes[member] = new
        else:
            above.pop()
            on_the_way.remove(id(container))
            new = _changed(container, changes, keep_refused) if changes else container
            if not above:
                return new
            if new is not container:
                above[-1][3][key] = new


def _changed(container: Any, changes: Mapping[Any, Any], keep_refused: bool) -> Any:
    try:
        return with_members(container, changes)
    except Exception:
        if keep_refused:
            return container
        raise


def _has_members(value: Any) -> bool:
    return kind_of_place(value) is TreeNode
