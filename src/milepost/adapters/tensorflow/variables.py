"""`tf.Variable` of every kind: resource, reference, distributed and sharded variables, and Keras 2's casting variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from milepost.adapters.tensorflow import session
from milepost.adapters.tensorflow.kinds import is_of_keras_3
from milepost.adapters.tensorflow.private import ShardedVariable
from milepost.adapters.tensorflow.tensors import dtype_of, from_array, to_array
from milepost.adapters.tensorflow.wrapped import is_of_session, unwrapped
from milepost.graph.adapter import ANY_SHAPE, Array, Value
from milepost.graph.keys import VARIABLE_VALUE


class TensorFlowVariableAdapter(session.InSession):
    """Every `tf.Variable`."""

    leaf = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, tf.Variable) and not is_of_keras_3(kind)

    def values(self, obj: Any) -> Sequence[Value]:
        variable = unwrapped(obj)
        shape = tuple(variable.shape.as_list()) if variable.shape.rank is not None else ANY_SHAPE
        return (
            Value(
                VARIABLE_VALUE,
                dtype_of(variable),
                shape,
                lambda: _read(variable, self._use),
                full_name=_full_name(variable),
            ),
        )

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        _assign(unwrapped(obj), arrays[VARIABLE_VALUE], self._use)
        return obj


class ShardedVariableAdapter(session.InSession):
    """A variable whose parts are slices of its first dimension. It is saved as one tensor."""

    leaf = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, ShardedVariable)

    def values(self, obj: Any) -> Sequence[Value]:
        parts = list(obj.variables)

        def source() -> Array:
            return np.concatenate([_read(unwrapped(part), self._use) for part in parts])

        name = _full_name(parts[0]) if getattr(parts[0], "_save_slice_info", None) is not None else ""
        return (Value(VARIABLE_VALUE, dtype_of(obj), tuple(obj.shape.as_list()), source, full_name=name),)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        array = arrays[VARIABLE_VALUE]
        start = 0
        for part in obj.variables:
            end = start + part.shape[0]
            _assign(unwrapped(part), array[start:end], self._use)
            start = end
        return obj


def _read(variable: Any, use: session.Use | None) -> Array:
    if is_of_session(variable):
        return session.read(variable, use)
    with tf.init_scope():
        if isinstance(variable, tf.distribute.DistributedValues):
            return to_array(variable._get_cross_replica())
        return to_array(variable.read_value())


def _assign(variable: Any, array: Array, use: session.Use | None) -> None:
    if is_of_session(variable):
        session.assign(variable, array, use)
        return
    # A value may be restored while a function is traced. It is assigned now, once, and not recorded as an operation.
    with tf.init_scope():
        tensor = from_array(array, dtype_of(variable))
        if not isinstance(variable, tf.distribute.DistributedValues):
            variable.assign(tensor)
            return
        # Each replica is assigned by itself, because this code may run in one of them.
        if _is_summed(variable):
            replicas = variable.distribute_strategy.num_replicas_in_sync  # those of other workers too
            tensor = tf.cast(tensor / replicas, variable.dtype)
        for part in variable.values:
            part.assign(tensor)


def _is_summed(variable: Any) -> bool:
    return (
        variable.synchronization is tf.VariableSynchronization.ON_READ
        and variable.aggregation is tf.VariableAggregation.SUM
    )


def _full_name(variable: Any) -> str:
    sliced = getattr(variable, "_save_slice_info", None)
    name: str = sliced.full_name if sliced is not None else getattr(variable, "_shared_name", "")
    return name
