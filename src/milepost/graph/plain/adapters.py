"""Adapters of the places of plain values (`milepost.graph.plain.places`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from milepost.graph.adapter import Adapter, Array, Value, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.plain.places import PlainLeaf, PlainNode
from milepost.graph.plain.values import from_saved, plain_value
from milepost.graph.trees.adapters import NodeAdapter


class PlainLeafAdapter(Adapter):
    """The place of a plain value."""

    leaf = True

    def handles(self, kind: type) -> bool:
        return kind is PlainLeaf

    def may_refuse(self, obj: Any) -> bool:
        return False

    def values(self, obj: PlainLeaf) -> Sequence[Value]:
        return (plain_value(obj.value),)

    def assign(self, obj: PlainLeaf, arrays: Mapping[str, Array]) -> Any:
        return from_saved(arrays[VARIABLE_VALUE], obj.saved_as, obj.value)


class PlainNodeAdapter(NodeAdapter):
    """The place of a tuple with plain values."""

    def handles(self, kind: type) -> bool:
        return kind is PlainNode


for _adapter in (PlainLeafAdapter(), PlainNodeAdapter()):
    register(_adapter)
