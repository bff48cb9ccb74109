"""Adapters of the places of plain values (`milepost.graph.plain.places`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from milepost.graph.adapter import Array, Value, register
from milepost.graph.contract.operation import Operation
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.plain.places import PlainLeaf, PlainNode
from milepost.graph.plain.values import TYPE_NAMES, from_saved, plain_value
from milepost.graph.trees.adapters import PlaceAdapter, TreeNodeAdapter
from milepost.graph.trees.places import Place


class PlainLeafAdapter(PlaceAdapter):
    """The place of a plain value."""

    leaf = True
    _saved_as: dict[Place, str]

    def during(self, operation: Operation) -> Self:
        adapter = super().during(operation)
        adapter._saved_as = operation.saved_as
        return adapter

    def handles(self, kind: type) -> bool:
        return kind is PlainLeaf

    def may_refuse(self, obj: Any) -> bool:
        return False

    def values(self, obj: PlainLeaf) -> Sequence[Value]:
        return (plain_value(self._held[obj]),)

    def assign(self, obj: PlainLeaf, arrays: Mapping[str, Array]) -> Any:
        live = self._held[obj]
        return from_saved(arrays[VARIABLE_VALUE], self._saved_as.get(obj, TYPE_NAMES[type(live)]), live)


class PlainNodeAdapter(TreeNodeAdapter):
    """The place of a tuple with plain values."""

    def handles(self, kind: type) -> bool:
        return kind is PlainNode


for _adapter in (PlainLeafAdapter(), PlainNodeAdapter()):
    register(_adapter)
