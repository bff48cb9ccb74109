"""`nnx.Variable`: what it holds, under its own name.

A variable that holds an array or a key has one value, that of the array; one that holds a container has the container's
children. It stays the same object with the same metadata; only what it holds is exchanged, past hooks that would change
it on the way, as `nnx.update` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np
from flax import nnx

from milepost.errors import UnsupportedError, UntrackableError
from milepost.graph.adapter import Adapter, Array, Value, adapter_of, adapter_of_type
from milepost.graph.keys import VARIABLE_VALUE
from milepost.tensor import DType

_NUMBERS: Final = {
    bool: (DType.of("bool"), frozenset[DType]()),
    int: (DType.of("int64"), frozenset({DType.of("int32"), DType.of("uint32")})),
    float: (DType.of("float64"), frozenset({DType.of("float32")})),
    complex: (DType.of("complex128"), frozenset({DType.of("complex64")})),
}
"""For each type of Python number, how it is saved, and from what else it is restored."""


class VariableAdapter(Adapter):
    """`nnx.Variable` of any type, `ref` and `hijax` ones included."""

    may_refuse = False
    conditional = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, (nnx.Variable, nnx.variablelib.HijaxVariable))

    def tracks(self, obj: Any) -> bool:
        return self.complaint(obj) is None

    def complaint(self, obj: Any) -> str | None:
        held = obj.get_raw_value()
        if held is None or type(held) in _NUMBERS or _is_ref(held) or isinstance(held, jax.core.Tracer):
            return None
        adapter = adapter_of_type(type(held))
        if adapter is None:
            return f"a {obj.var_type.__name__} that holds a {type(held).__name__}"
        return adapter.complaint(held)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        held = obj.get_raw_value()
        adapter = adapter_of(held)
        return () if adapter is None or adapter.leaf else adapter.children(held)

    def values(self, obj: Any) -> Sequence[Value]:
        held = obj.get_raw_value()
        if not obj._can_update or isinstance(held, jax.core.Tracer):
            raise UntrackableError(
                "a variable can be neither saved nor restored inside a traced function, or after it leaked from one",
                found=f"a {obj.var_type.__name__} of {held}",
                remedy="save and restore outside of jit, grad, vmap and scan",
            )
        if type(held) in _NUMBERS:
            dtype, accepts = _NUMBERS[type(held)]
            return (Value(VARIABLE_VALUE, dtype, (), lambda: _number(held, dtype), accepts=accepts),)
        if _is_ref(held):
            return (Value(VARIABLE_VALUE, DType.of(held.dtype), held.shape, lambda: np.asarray(held[...])),)
        adapter = adapter_of(held)
        return adapter.values(held) if adapter is not None and adapter.leaf else ()

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        held = obj.get_raw_value()
        if type(held) in _NUMBERS:
            obj.set_raw_value(type(held)(arrays[VARIABLE_VALUE].item()))
        elif _is_ref(held):
            held[...] = arrays[VARIABLE_VALUE]
        else:
            adapter = adapter_of(held)
            assert adapter is not None, "what has values has an adapter"
            successor = adapter.assign(held, arrays)
            if successor is not held:
                obj.set_raw_value(successor)
        return obj

    def replace(self, obj: Any, changes: Mapping[str, Any]) -> Any:
        held = obj.get_raw_value()
        adapter = adapter_of(held)
        assert adapter is not None, "what has children has an adapter"
        obj.set_raw_value(adapter.replace(held, changes))
        return obj


class KeyVariableAdapter(VariableAdapter):
    """`nnx.RngKey`: what it holds refuses the state of another generator."""

    may_refuse = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, nnx.RngKey)


def _number(number: Any, dtype: DType) -> Array:
    try:
        return np.array(number, dtype.numpy)
    except OverflowError:
        raise UnsupportedError("a number of more than 64 bits cannot be stored", found=number) from None


def _is_ref(held: Any) -> bool:
    return isinstance(held, jax.Ref)
