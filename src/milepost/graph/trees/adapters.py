"""Adapters of places (`milepost.graph.trees.places`), and of whole trees."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from milepost.graph.adapter import Adapter, Array, Value, adapter_of_type, register
from milepost.graph.containers import find_trackable
from milepost.graph.contract.operation import Operation
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.numbers import NUMBERS, number_like, number_value, scalar_like, taken_by_scalar
from milepost.graph.omissions import Omission
from milepost.graph.remedies import remedy_for
from milepost.graph.text import TEXTS, text_like, text_value
from milepost.graph.trees.places import CheckedLeaf, Leaf, Place, Tree, TreeNode, kind_of_place, place_of_tree
from milepost.graph.trees.structure import is_functional, members, positions_beside_fields
from milepost.graph.variable import own


class PlaceAdapter(Adapter):
    """Places. An operation has its own adapters of them (`during`), which know the values of places in this operation."""

    _held: dict[Place, Any]

    def during(self, operation: Operation) -> Self:
        adapter = copy.copy(self)
        adapter._held = operation.held
        return adapter


class TreeNodeAdapter(PlaceAdapter):
    """The place of a container. Its children are the places of the members."""

    def handles(self, kind: type) -> bool:
        return kind is TreeNode

    def may_refuse(self, obj: Any) -> bool:
        return False

    def children(self, obj: TreeNode) -> Iterable[tuple[str, Any]]:
        return obj.children(self._held)

    def unwanted(self, obj: TreeNode, saved: Collection[str]) -> Collection[str]:
        return positions_beside_fields(self._held[obj], saved)

    def replace(self, obj: TreeNode, changes: Mapping[str, Any]) -> TreeNode:
        return obj  # the new tree has been built already, with all changes


class LeafAdapter(PlaceAdapter):
    """The place of an array. The adapter of the array makes its successor."""

    leaf = True

    def handles(self, kind: type) -> bool:
        return kind is Leaf

    def may_refuse(self, obj: Any) -> bool:
        return False

    def values(self, obj: Place) -> Sequence[Value]:
        return leaf_values(Leaf, self._held[obj])

    def before_assign(self, obj: Place) -> Callable[[], object]:
        return _nothing  # the place gets its new value when the tree is rebuilt

    def assign(self, obj: Place, arrays: Mapping[str, Array]) -> Any:
        return leaf_successor(Leaf, self._held[obj], arrays)


class CheckedLeafAdapter(LeafAdapter):
    """The place of a number or text. It takes numbers of other types too, if the live type has an equal number."""

    def handles(self, kind: type) -> bool:
        return kind is CheckedLeaf

    def may_refuse(self, obj: Any) -> bool:
        return True

    def values(self, obj: Place) -> Sequence[Value]:
        return leaf_values(CheckedLeaf, self._held[obj])

    def assign(self, obj: Place, arrays: Mapping[str, Array]) -> Any:
        return leaf_successor(CheckedLeaf, self._held[obj], arrays)


def _nothing() -> None:
    pass


def leaf_values(kind: type[Place], live: Any) -> Sequence[Value]:
    """The values of what a place holds.

    Args:
        kind: The kind of the place, `Leaf` or `CheckedLeaf`.
        live: What it holds.
    """
    if kind is CheckedLeaf and type(live) in NUMBERS:
        return (number_value(live),)
    if kind is CheckedLeaf and type(live) in TEXTS:
        return (text_value(live),)
    adapter = adapter_of_type(type(live))
    assert adapter is not None, "only what has an adapter has a place"
    values = adapter.values(live)
    if isinstance(live, np.ndarray):
        # never read into their memory
        values = [Value(each.name, each.dtype, each.shape, each.source) for each in values]
    if kind is CheckedLeaf and values[0].shape == ():
        values[0].accepts = taken_by_scalar(values[0].dtype)
    return values


def leaf_successor(kind: type[Place], live: Any, arrays: Mapping[str, Array]) -> Any:
    """What a place holds after a restore.

    Args:
        kind: As for `leaf_values`.
        live: As for `leaf_values`.
        arrays: The saved values by their names.
    """
    if kind is CheckedLeaf:
        array = arrays[VARIABLE_VALUE]
        if type(live) in NUMBERS:
            return number_like(live, array)
        if type(live) in TEXTS:
            return text_like(live, array)
        if not array.shape and not array.dtype.hasobject:
            like = scalar_like(np.dtype(live.dtype), array, rounded=getattr(live, "weak_type", False))
            arrays = {**arrays, VARIABLE_VALUE: like}
    adapter = adapter_of_type(type(live))
    assert adapter is not None, "only what has an adapter has a place"
    if not isinstance(live, np.ndarray):
        return adapter.assign(live, arrays)
    array = arrays[VARIABLE_VALUE]
    if type(live) is np.ndarray and array.dtype == live.dtype:
        new = own(array)
    else:
        unwritable = live.view()
        unwritable.flags.writeable = False
        new = adapter.assign(unwritable, arrays)
    new.flags.writeable = live.flags.writeable
    return new


class TreeAdapter(PlaceAdapter):
    """`Tree`: it has the children or the value of its tree."""

    def handles(self, kind: type) -> bool:
        return kind is Tree

    def children(self, obj: Tree) -> Iterable[tuple[str, Any]]:
        kind = kind_of_place(obj.value)
        if kind is not TreeNode:
            return ()
        place = place_of_tree(self._held, obj, "", obj.value, kind)
        return place.children(self._held) if isinstance(place, TreeNode) else ()

    def values(self, obj: Tree) -> Sequence[Value]:
        kind = kind_of_place(obj.value)
        return () if kind is None or kind is TreeNode else leaf_values(kind, obj.value)

    def assign(self, obj: Tree, arrays: Mapping[str, Array]) -> Tree:
        kind = kind_of_place(obj.value)
        assert kind is not None, "only a leaf has values"
        obj.value = leaf_successor(kind, obj.value, arrays)
        return obj

    def replace(self, obj: Tree, changes: Mapping[str, Any]) -> Tree:
        obj.value = changes.get("", obj.value)
        return obj


class DefaultDictAdapter(Adapter):
    """``defaultdict``, which is saved only as a part of trees."""

    def handles(self, kind: type) -> bool:
        return kind is defaultdict

    def tracks(self, obj: Any) -> bool:
        return is_functional(obj)

    def omission(self, obj: Any) -> Omission | None:
        trackable = find_trackable(obj)
        reason = f"a defaultdict is not tracked, but holds an object of type {type(trackable).__name__}"
        return None if trackable is None else Omission(reason, remedy_for(obj), doubtful=True)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        return [(name, child) for names, _, child in members(obj) for name in names]


for _adapter in (TreeNodeAdapter(), LeafAdapter(), CheckedLeafAdapter(), TreeAdapter(), DefaultDictAdapter()):
    register(_adapter)
