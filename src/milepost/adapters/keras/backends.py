"""How the value of a Keras variable is read and assigned on each backend, wherever the program runs.

The program may be inside a ``tf.function``, a JAX trace, or a scope of Keras in which variables record updates instead of changing.
A restored value must be assigned to the variable itself, and at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras
import numpy as np

from milepost.graph.adapter import Array, StoredTensor
from milepost.tensor import PiecewiseArray, ShardedArray, TensorSlice


class Backend:
    """A backend whose values are arrays, such as Keras' ``numpy`` backend."""

    def read(self, value: Any) -> Array | PiecewiseArray | ShardedArray:
        """A value as an array, without a copy where the backend allows it."""
        return np.asarray(value)

    def in_boxes(self, value: Any) -> tuple[bool, Sequence[TensorSlice] | None]:
        """What a `milepost.graph.adapter.Value` takes as ``in_boxes`` and ``boxes``: whether boxes of the value are read, and which."""
        return False, None

    def write(self, variable: Any, array: Array | StoredTensor) -> None:
        """Assigns a value to an initialised variable; ``array`` has the variable's own dtype."""
        variable._direct_assign(keras.ops.convert_to_tensor(array, dtype=variable._dtype))

    def memory(self, value: Any) -> Array | None:
        """The memory of a value, if a restore can read into it; otherwise None."""
        return None

    def eagerly(self) -> AbstractContextManager[Any]:
        """A scope in which operations run at once, on real devices, even while a function is traced."""
        return nullcontext()


class TensorFlow(Backend):
    """Values are `tf.Variable`."""

    def read(self, value: Any) -> Array:
        import tensorflow as tf

        with tf.init_scope():
            array: Array = np.asarray(value.numpy())
        return array

    def write(self, variable: Any, array: Array | StoredTensor) -> None:
        import tensorflow as tf

        with tf.init_scope():
            variable._value.assign(array)

    def eagerly(self) -> AbstractContextManager[Any]:
        import tensorflow as tf

        scope: AbstractContextManager[Any] = tf.init_scope()
        return scope


class Jax(Backend):
    """Values are `jax.Array`, which cannot change. They may be spread over devices and processes."""

    def read(self, value: Any) -> Array | PiecewiseArray | ShardedArray:
        from milepost.adapters.jax.arrays import read

        return read(value) if _is_spread(value) else np.asarray(value)

    def in_boxes(self, value: Any) -> tuple[bool, Sequence[TensorSlice] | None]:
        from milepost.adapters.jax.pieces import boxes_here

        return (True, boxes_here(value.sharding, value.shape)) if _is_spread(value) else (False, None)

    def write(self, variable: Any, array: Array | StoredTensor) -> None:
        import jax

        from milepost.adapters.jax.arrays import successor

        with jax.ensure_compile_time_eval():
            old = variable._value
            new = successor(old, array) if _is_spread(old) else jax.numpy.asarray(array)
            variable._direct_assign(new)

    def eagerly(self) -> AbstractContextManager[Any]:
        import jax

        scope: AbstractContextManager[Any] = jax.ensure_compile_time_eval()
        return scope


class Torch(Backend):
    """Values are `torch.nn.Parameter`. On a CPU, arrays share their memory."""

    def read(self, value: Any) -> Array | PiecewiseArray:
        from milepost.adapters.torch.on_gpu import elements

        return elements(value)

    def write(self, variable: Any, array: Array | StoredTensor) -> None:
        from milepost.adapters.torch import memory

        assert isinstance(array, np.ndarray), "these values are not read in boxes"
        memory.write(variable._value, array)

    def memory(self, value: Any) -> Array | None:
        from milepost.adapters.torch import memory

        return memory.memory(value)

    def eagerly(self) -> AbstractContextManager[Any]:
        from milepost.adapters.keras.private import DEFAULT_DEVICE, device_scope, get_device

        device = get_device()
        scope: AbstractContextManager[Any] = device_scope(DEFAULT_DEVICE if device == "meta" else device)
        return scope


def _is_spread(value: Any) -> bool:
    import jax

    from milepost.adapters.jax.pieces import is_spread

    is_array = isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)
    return is_array and is_spread(value.sharding)


_BY_NAME = {"tensorflow": TensorFlow, "jax": Jax, "torch": Torch}

backend: Backend = _BY_NAME.get(keras.backend.backend(), Backend)()
"""The backend that Keras runs on."""
