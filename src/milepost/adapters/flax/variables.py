"""`nnx.Variable`: the array that it holds, or the arrays of a container that it holds.

A restore keeps the variable and its metadata, and replaces what the variable holds. As in `nnx.update`, hooks of the variable do
not change the new value. A variable that holds an array has one value. A variable that holds a container has one value for each
array in it; the local name of each is its path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import jax
from flax import nnx

from milepost.adapters.flax.moved import VARIABLES, can_update, kind_of, set_raw_value
from milepost.adapters.flax.moved import raw_value as raw_value_of
from milepost.adapters.jax.moved import Ref
from milepost.errors import UntrackableError
from milepost.graph.adapter import Adapter, Array, Value, adapter_of_type
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.omissions import Omission
from milepost.graph.trees.adapters import leaf_successor, leaf_values
from milepost.graph.trees.places import CheckedLeaf, Leaf, Place, kind_of_place
from milepost.tensor import PiecewiseArray, ShardedArray

_STORABLE: Final = "hold numbers, text, arrays, or trees of them in it"


class NnxVariableAdapter(Adapter):
    """`nnx.Variable` of any type, `ref` and `hijax` ones included."""

    leaf = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, VARIABLES)

    def tracks(self, obj: Any) -> bool:
        return self.omission(obj) is None

    def omission(self, obj: Any) -> Omission | None:
        raw_value = raw_value_of(obj)
        if _is_ref(raw_value) or _kind(raw_value) is not None:
            return None
        for _, leaf in _leaves(raw_value):
            if not _is_ref(leaf) and _kind(leaf) is None:
                return Omission(f"a {kind_of(obj).__name__} that holds a {type(leaf).__name__}", _STORABLE)
        return None

    def values_to_save(self, obj: Any) -> Sequence[Value]:
        if not can_update(obj):
            raise UntrackableError(
                "a variable can be neither saved nor restored inside a function that is being traced",
                found=f"a {kind_of(obj).__name__} from outside of it",
                remedy="save and restore outside of jit, grad, vmap and scan",
            )
        return _values(raw_value_of(obj))

    def values(self, obj: Any) -> Sequence[Value]:
        values = self.values_to_save(obj)
        for value in values:
            # Refers to the variable, and not to the array, so that the array is freed as soon as it has a successor.
            value.source = partial(_read, obj, value.name)
        return values

    def may_refuse(self, obj: Any) -> bool:
        raw_value = raw_value_of(obj)
        return not (_is_ref(raw_value) or kind_of_place(raw_value) is Leaf)

    def before_assign(self, obj: Any) -> Callable[[], object]:
        raw_value = raw_value_of(obj)
        return lambda: set_raw_value(obj, raw_value)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        raw_value = raw_value_of(obj)
        if _is_ref(raw_value):
            _adapter_of_refs().assign(raw_value, arrays)
            return obj
        kind = _kind(raw_value)
        if kind is not None:
            set_raw_value(obj, leaf_successor(kind, raw_value, arrays))
            return obj
        leaves = []
        for path, leaf in _leaves(raw_value):
            kind = _kind(leaf)
            leaf_arrays = {
                value.name: arrays[name] for value in _values(leaf) if (name := _local_name(path, value.name)) in arrays
            }
            leaves.append(leaf if kind is None or not leaf_arrays else leaf_successor(kind, leaf, leaf_arrays))
        set_raw_value(obj, jax.tree_util.tree_structure(raw_value).unflatten(leaves))
        return obj


def _kind(raw_value: Any) -> type[Place] | None:
    """The kind of place of a raw value, as in trees, so that numbers and keys follow the same rules; None for a container."""
    kind = kind_of_place(raw_value)
    return kind if kind is Leaf or kind is CheckedLeaf else None


def _adapter_of_refs() -> Adapter:
    adapter = adapter_of_type(Ref)
    assert adapter is not None, "references have an adapter"
    return adapter


def _values(raw_value: Any) -> Sequence[Value]:
    if _is_ref(raw_value):
        return _adapter_of_refs().values(raw_value)
    kind = _kind(raw_value)
    if kind is not None:
        return leaf_values(kind, raw_value)
    values = []
    for path, leaf in _leaves(raw_value):
        for value in _values(leaf):
            value.name = value.listed = _local_name(path, value.name)
            values.append(value)
    return values


def _read(variable: Any, name: str) -> Array | PiecewiseArray | ShardedArray:
    return next(value.read() for value in _values(raw_value_of(variable)) if value.name == name)


def leaves_with_path(tree: Any, is_leaf: Callable[[Any], bool]) -> list[tuple[Any, Any]]:
    """The leaves of a tree that an object of NNX holds, each with JAX's path.

    Raises:
        UntrackableError: JAX cannot sort the keys of a dict.
    """
    try:
        pairs: list[tuple[Any, Any]] = jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_leaf)
    except (TypeError, ValueError) as error:
        raise UntrackableError(
            "JAX cannot list the values of a container that an object of NNX holds",
            expected="dicts whose keys can be sorted",
            found=f"{type(error).__name__}: {error}",
            remedy="let the keys of each dict be all text or all numbers",
        ) from error
    return pairs


def _leaves(raw_value: Any) -> list[tuple[str, Any]]:
    """The leaves of a container, each with its path."""
    pairs = leaves_with_path(raw_value, lambda each: isinstance(each, nnx.Variable))
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in pairs]


def _local_name(path: str, name: str) -> str:
    return path if name == VARIABLE_VALUE else f"{path}/{name}"


def _is_ref(raw_value: Any) -> bool:
    return type(raw_value) is Ref  # isinstance() is slow here: it asks JAX for the type of every array
