"""A part of a tree of values that is saved as plain state: one node of the object graph, with the tensors that `pack` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from milepost.graph.adapter import Adapter, Array, Value, register
from milepost.plain_state.encoding import pack
from milepost.tensor import DType, TensorSpec

PLAIN_PART: Final = "milepost.plain_state"
"""The name of the type in the object graph. With it, all members of a list or dict are known even if one of them is such a part."""


class PlainPart:
    """A part of a tree.

    Args:
        value: What `milepost.plain_state.encoding.pack` takes.
    """

    def __init__(self, value: Any) -> None:
        self.value = value


class PlainPartAdapter(Adapter):
    """`PlainPart`. A tree is loaded as a whole, so nothing is restored into one."""

    leaf = True
    array_type = PLAIN_PART

    def handles(self, kind: type) -> bool:
        return kind is PlainPart

    def values(self, obj: PlainPart) -> Sequence[Value]:
        return [Value(name, DType.of(array), array.shape, array) for name, array in pack(obj.value).items()]

    def is_new_array(self, obj: Any) -> bool:
        return True

    def new_array(self, spec: TensorSpec, hints: Mapping[str, Array]) -> None:
        return None


register(PlainPartAdapter())
