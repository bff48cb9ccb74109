"""JAX's mutable arrays (`jax.new_ref`). A restore changes them in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from milepost.adapters.jax.moved import Ref
from milepost.graph.adapter import Adapter, Array, Value, adapter_of_type, register


class RefAdapter(Adapter):
    """`jax.Ref`: the values of the array that it holds."""

    leaf = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, Ref)

    def values(self, obj: Any) -> Sequence[Value]:
        array = obj[...]
        return _adapter(array).values(array)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        array = obj[...]
        obj[...] = _adapter(array).assign(array, arrays)
        return obj


def _adapter(array: Any) -> Adapter:
    adapter = adapter_of_type(type(array))
    assert adapter is not None, "a reference holds an array"
    return adapter


register(RefAdapter())
