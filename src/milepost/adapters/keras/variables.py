"""Keras variables, in every state that they can have.

A variable that is made while Keras traces a model has an initializer and no value. A restore replaces the initializer by one that
returns the saved value. While ``fit`` runs on JAX, a variable has neither: the trainer holds its value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import keras
import numpy as np

from milepost.adapters.keras.backends import backend
from milepost.adapters.keras.private import Variable
from milepost.errors import MismatchError, UnsupportedError
from milepost.graph.adapter import Adapter, Array, StoredTensor, Value, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.tensor import DType, PiecewiseArray, ShardedArray

_INTEGER_NAMES: Final = frozenset({"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"})
_INTEGERS: Final = frozenset(map(DType.of, _INTEGER_NAMES))
_INT64: Final = DType.of("int64")
_COUNTERS: Final = frozenset({"iteration", "step_counter"})
"""Names of optimizers' variables that are int64 on TensorFlow and int32 elsewhere, and are always saved as int64."""


class Restored:
    """An initializer that returns a saved value."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        return keras.ops.convert_to_tensor(self.array, dtype=dtype)


class KerasVariableAdapter(Adapter):
    """`keras.Variable`."""

    leaf = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, Variable)

    def values(self, obj: Any) -> Sequence[Value]:
        variable_dtype = DType.of(obj._dtype)
        accepts = _INTEGERS if variable_dtype.name in _INTEGER_NAMES else frozenset()
        dtype = _INT64 if accepts and obj.name in _COUNTERS else variable_dtype
        destination = backend.memory(obj._value) if obj._value is not None and not accepts else None
        if destination is not None and destination.dtype != variable_dtype.numpy:
            destination = None

        def source() -> Array | PiecewiseArray | ShardedArray:
            value = value_of(obj)
            return value if value.dtype == dtype.numpy else np.asarray(value).astype(dtype.numpy)

        value = Value(
            VARIABLE_VALUE, dtype, tuple(obj._shape), source, destination, full_name=obj.path, accepts=accepts
        )
        if obj._value is not None and not accepts:
            value.in_boxes, value.boxes = backend.in_boxes(obj._value)
        return (value,)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        array: Array | StoredTensor = arrays[VARIABLE_VALUE]
        if isinstance(array, np.ndarray):
            memory = backend.memory(obj._value) if obj._value is not None else None
            if memory is not None and np.may_share_memory(array, memory):
                return obj
            array = _exactly(array, DType.of(obj._dtype), obj.path)
        if obj._value is not None:
            backend.write(obj, array)
        elif obj._initializer is not None:
            assert isinstance(array, np.ndarray), "what has no value yet is not read in boxes"
            obj._initializer = Restored(array)
        else:
            raise _held_by_trainer(obj)
        return obj


def value_of(obj: Any) -> Array | PiecewiseArray | ShardedArray:
    """The value of a variable. If it has none yet, this is the restored value that its initializer will return.

    Raises:
        UnsupportedError: The variable has no value and none was restored, or the trainer holds it.
    """
    if obj._value is not None:
        return backend.read(obj._value)
    if isinstance(obj._initializer, Restored):
        return obj._initializer.array
    if obj._initializer is not None:
        raise UnsupportedError(
            "this variable has no value yet: it was made while Keras traced its model",
            key=obj.path,
            remedy="save after the call in which the variable is made",
        )
    raise _held_by_trainer(obj)


def _held_by_trainer(obj: Any) -> UnsupportedError:
    return UnsupportedError(
        "while fit() runs on JAX, the trainer of the model holds the value of this variable",
        key=obj.path,
        remedy="put the model into the checkpoint too, or call model.jax_state_sync() first",
    )


def _exactly(array: Array, dtype: DType, key: str) -> Array:
    """Converts an array to another integer type.

    Raises:
        MismatchError: An element does not fit into that type.
    """
    converted = array.astype(dtype.numpy, copy=False)
    if converted is not array and not np.array_equal(converted, array):
        raise MismatchError(
            "a saved number does not fit into the live variable",
            key=key,
            expected=dtype,
            found=array,
            remedy="make the variable with a wider element type",
        )
    return converted


register(KerasVariableAdapter())
