"""How the value of a Keras variable is read and given on each backend, wherever the program happens to be.

The program may be inside a ``tf.function``, a JAX trace, or a scope of Keras in which variables record their updates
instead of changing; a restored value must reach the variable itself.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras
import numpy as np

from milepost.graph.adapter import Array


class Backend:
    """A backend whose values are arrays, such as Keras' ``numpy`` backend."""

    def read(self, value: Any) -> Array:
        """A value as an array, without a copy where the backend has one."""
        return np.asarray(value)

    def write(self, variable: Any, array: Array) -> None:
        """Gives an initialised variable its value; ``array`` is of the variable's own dtype."""
        variable._direct_assign(keras.ops.convert_to_tensor(array, dtype=variable._dtype))

    def memory(self, value: Any) -> Array | None:
        """Memory of the value that may be read into, or None."""
        return None

    def eagerly(self) -> AbstractContextManager[Any]:
        """A scope in which operations run at once, on real devices, even while something is traced."""
        return nullcontext()


class TensorFlow(Backend):
    """Values are `tf.Variable`."""

    def read(self, value: Any) -> Array:
        import tensorflow as tf

        with tf.init_scope():
            array: Array = np.asarray(value.numpy())
        return array

    def write(self, variable: Any, array: Array) -> None:
        import tensorflow as tf

        with tf.init_scope():
            variable._value.assign(array)

    def eagerly(self) -> AbstractContextManager[Any]:
        import tensorflow as tf

        scope: AbstractContextManager[Any] = tf.init_scope()
        return scope


class Jax(Backend):
    """Values are `jax.Array`, which cannot change."""

    def write(self, variable: Any, array: Array) -> None:
        import jax

        with jax.ensure_compile_time_eval():
            variable._direct_assign(jax.numpy.asarray(array))

    def eagerly(self) -> AbstractContextManager[Any]:
        import jax

        scope: AbstractContextManager[Any] = jax.ensure_compile_time_eval()
        return scope


class Torch(Backend):
    """Values are `torch.nn.Parameter`; on the CPU they share their memory with arrays."""

    def read(self, value: Any) -> Array:
        from milepost.adapters.torch import memory

        return memory.as_array(value)

    def write(self, variable: Any, array: Array) -> None:
        from milepost.adapters.torch import memory

        memory.write(variable._value, array)

    def memory(self, value: Any) -> Array | None:
        from milepost.adapters.torch import memory

        return memory.memory(value)

    def eagerly(self) -> AbstractContextManager[Any]:
        from milepost.adapters.keras.private import DEFAULT_DEVICE, device_scope, get_device

        device = get_device()
        scope: AbstractContextManager[Any] = device_scope(DEFAULT_DEVICE if device == "meta" else device)
        return scope


_BY_NAME = {"tensorflow": TensorFlow, "jax": Jax, "torch": Torch}

backend: Backend = _BY_NAME.get(keras.backend.backend(), Backend)()
"""The one that Keras runs on."""
