"""`nnx.Variable`: what it holds, under its own name.

A variable stays the same object with the same metadata; only what it holds is exchanged, past hooks that would change
it on the way, as `nnx.update` does. One that holds an array has one value. One that holds a container has a value for
each array in it, whose local names are paths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx

from milepost.errors import UntrackableError
from milepost.graph.adapter import Adapter, Array, Value, adapter_of
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.places import CheckedLeaf, Leaf, kind_of_place
from milepost.tensor import DType


class VariableAdapter(Adapter):
    """`nnx.Variable` of any type, `ref` and `hijax` ones included."""

    leaf = True
    conditional = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, (nnx.Variable, nnx.variablelib.HijaxVariable))

    def tracks(self, obj: Any) -> bool:
        return self.complaint(obj) is None

    def complaint(self, obj: Any) -> str | None:
        held = obj.get_raw_value()
        if isinstance(held, jax.Array):
            return None
        for _, leaf in _leaves(held):
            if not _is_data(leaf):
                return f"a {obj.var_type.__name__} that holds a {type(leaf).__name__}"
        return None

    def values(self, obj: Any) -> Sequence[Value]:
        if not obj._can_update:
            raise UntrackableError(
                "a variable can be neither saved nor restored inside a function that is being traced",
                found=f"a {obj.var_type.__name__} from outside of it",
                remedy="save and restore outside of jit, grad, vmap and scan",
            )
        values = _all_values(obj.get_raw_value())
        for value in values:
            # Not bound to the array, so that it is free as soon as it has a successor.
            value.source = partial(_read, obj, value.name)
        return values

    def refuses(self, obj: Any) -> bool:
        held = obj.get_raw_value()
        return not (_is_ref(held) or kind_of_place(held) is Leaf)

    def undoing(self, obj: Any) -> Callable[[], object]:
        held = obj.get_raw_value()
        return lambda: obj.set_raw_value(held)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        held = obj.get_raw_value()
        if _is_data(held):
            successor = _successor(held, arrays)
        else:
            leaves = []
            for path, leaf in _leaves(held):
                given = {
                    value.name: arrays[name]
                    for value in _values(leaf)
                    if (name := _local_name(path, value.name)) in arrays
                }
                leaves.append(_successor(leaf, given) if given else leaf)
            successor = jax.tree_util.tree_structure(held).unflatten(leaves)
        if successor is not held:
            obj.set_raw_value(successor)
        return obj


def _all_values(held: Any) -> Sequence[Value]:
    if _is_data(held):
        return _values(held)
    values = []
    for path, leaf in _leaves(held):
        for value in _values(leaf):
            value.name = value.listed = _local_name(path, value.name)
            values.append(value)
    return values


def _read(variable: Any, name: str) -> Array:
    return next(value.read() for value in _all_values(variable.get_raw_value()) if value.name == name)


def _leaves(held: Any) -> list[tuple[str, Any]]:
    """What a container holds, each with its path."""
    pairs = jax.tree_util.tree_leaves_with_path(held, is_leaf=lambda each: isinstance(each, nnx.Variable))
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in pairs]


def _local_name(path: str, name: str) -> str:
    return path if name == VARIABLE_VALUE else f"{path}/{name}"


def _is_data(held: Any) -> bool:
    return _is_ref(held) or kind_of_place(held) in (Leaf, CheckedLeaf)


def _is_ref(held: Any) -> bool:
    return type(held) is jax.Ref  # isinstance would ask what every array is in types of JAX


def _place(held: Any) -> Any:
    """A place as in trees, whose rules for numbers and for keys hold in variables too."""
    kind = kind_of_place(held)
    assert kind is not None, "only data is asked for"
    place = kind(None, "")
    place.value = held
    return place


def _values(held: Any) -> Sequence[Value]:
    if _is_ref(held):
        return (Value(VARIABLE_VALUE, DType.of(held.dtype), held.shape, lambda: np.asarray(held[...])),)
    place = _place(held)
    adapter = adapter_of(place)
    assert adapter is not None, "places have adapters"
    return adapter.values(place)


def _successor(held: Any, arrays: Mapping[str, Array]) -> Any:
    if _is_ref(held):
        held[...] = arrays[VARIABLE_VALUE]
        return held
    place = _place(held)
    adapter = adapter_of(place)
    assert adapter is not None, "places have adapters"
    return adapter.assign(place, arrays)
