"""Copies of trees that hold NNX's modules and variables, for programs without side effects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np

from milepost.adapters.flax.moved import VARIABLES, DataElem, Pytree, StaticElem, graph, is_node, kind_of, raw_value
from milepost.adapters.jax.moved import Ref, new_ref
from milepost.graph.trees.leaves import with_leaves

_SORTED: Final = (dict, defaultdict)
"""The types of dicts whose keys JAX sorts."""


def copied(
    tree: Any, change: Callable[[Any], Any] | None = None, *, keep_refused: bool = False
) -> tuple[Any, Mapping[int, Any]]:
    """Copies a tree with its NNX modules and variables. Objects that the modules share are shared in the copy too.

    Args:
        tree: Any pytree, or an object of NNX.
        change: Replaces the arrays in modules and variables, and the other leaves; by default they stay the same.
        keep_refused: As in `with_leaves`.

    Returns:
        The new tree; and the copies of the modules and variables that the tree holds, by the identity of the object that each
        is a copy of.
    """
    objects: dict[int, Any] = {}

    def changed(leaf: Any) -> Any:
        if issubclass(type(leaf), (Pytree, *VARIABLES)):  # isinstance() is slow here, as NNX defines it for variables
            objects[id(leaf)] = leaf
            return leaf
        return change(leaf) if change else leaf

    new = with_leaves(tree, changed, keep_refused=keep_refused)
    if not objects:
        return new, {}
    copies = _Copies(change or _same)
    made = {each: copies.of(obj) for each, obj in objects.items()}
    copies.fill()
    return with_leaves(new, lambda leaf: made.get(id(leaf), leaf)), made


class _Copies:
    """Copies of objects and of all that they hold. What several of them share is copied once.

    `nnx.clone` makes the same, and takes several times as long, because it describes each object by objects of its own.

    Args:
        change: Returns the new leaf for an old one.
    """

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self._change = change
        self._made: dict[int, Any] = {}
        self._empty: list[tuple[Callable[..., object], Any, Sequence[tuple[Any, Any]]]] = []

    def of(self, obj: Any) -> Any:
        """The copy of a variable, a reference or a node. That of a node is empty before `fill`."""
        made = self._made.get(id(obj))
        if made is None:
            made = self._made[id(obj)] = self._new(obj)
        return made

    def _new(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is Ref:
            return self._change(obj)
        if issubclass(kind, VARIABLES):
            value = raw_value(obj)
            if type(value) is Ref:
                new = self.of(value)
            elif isinstance(value, (jax.Array, np.ndarray)):  # which most are
                new = self._change(value)
            else:
                new = _mapped(self._change, value, _is_sorted)
            return kind_of(obj).from_metadata(new, obj.get_metadata())
        functions = graph.get_node_impl(obj)
        members, definition = functions.flatten(obj)
        new = functions.create_empty(definition)
        self._empty.append((functions.init, new, members))
        return new

    def fill(self) -> None:
        """Gives the copies of nodes their members."""
        for init, new, members in self._empty:  # which grows, as members are nodes too
            init(new, [(name, self._member(each)) for name, each in members])

    def _member(self, member: Any) -> Any:
        kind = type(member)
        if kind is StaticElem:
            return member.value
        value = member.value if kind is DataElem else member
        return self.of(value) if _is_shared(value) else _mapped(self._leaf, value, _is_sorted_or_shared)

    def _leaf(self, leaf: Any) -> Any:
        return self.of(leaf) if _is_shared(leaf) else self._change(leaf)


def _is_shared(value: Any) -> bool:
    """Whether NNX sees that several objects hold the same value: a variable, a reference or a node."""
    kind = type(value)
    return kind is Ref or issubclass(kind, VARIABLES) or is_node(value)


def _mapped(change: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], bool]) -> Any:
    """A copy of a tree with other leaves. JAX would sort the keys of dicts, and refuse text beside numbers.

    Args:
        change: Returns the new leaf for an old one.
        tree: The tree.
        is_leaf: Whether a value is a leaf. It must be true of the dicts whose keys JAX sorts.
    """

    def changed(each: Any) -> Any:
        if type(each) not in _SORTED:
            return change(each)
        new = each.copy()
        new.update((key, _mapped(change, member, is_leaf)) for key, member in each.items())
        return new

    return jax.tree.map(changed, tree, is_leaf=is_leaf)


def _is_sorted(value: Any) -> bool:
    return type(value) in _SORTED


def _is_sorted_or_shared(value: Any) -> bool:
    return type(value) in _SORTED or _is_shared(value)


def _same(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf.copy()  # it would be restored in place
    return new_ref(leaf[...]) if type(leaf) is Ref else leaf
