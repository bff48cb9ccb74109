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
        import torch

        tensor = value.detach()
        if tensor.device.type != "cpu":
            tensor = tensor.cpu()
        if tensor.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
            import ml_dtypes

            name = str(tensor.dtype).removeprefix("torch.")
            bits = tensor.contiguous().view(torch.int16 if tensor.dtype is torch.bfloat16 else torch.int8)
            return bits.numpy().view(getattr(ml_dtypes, name))  # type: ignore[no-any-return]
        array: Array = tensor.numpy()
        return array

    def write(self, variable: Any, array: Array) -> None:
        import torch

        with torch.no_grad():
            tensor = variable._value.detach()
            if array.dtype.kind == "V":  # types that torch does not take from NumPy
                wide = np.asarray(array, np.float32)
                tensor.copy_(torch.from_numpy(wide))
            else:
                tensor.copy_(torch.from_numpy(np.require(array, requirements=["C", "W"])))

    def memory(self, value: Any) -> Array | None:
        tensor = value.detach()
        return self.read(value) if tensor.device.type == "cpu" and tensor.is_contiguous() else None

    def eagerly(self) -> AbstractContextManager[Any]:
        from keras.src.backend.torch.core import DEFAULT_DEVICE, device_scope, get_device

        device = get_device()
        scope: AbstractContextManager[Any] = device_scope(DEFAULT_DEVICE if device == "meta" else device)
        return scope


_BY_NAME = {"tensorflow": TensorFlow, "jax": Jax, "torch": Torch}

backend: Backend = _BY_NAME.get(keras.backend.backend(), Backend)()
"""The one that Keras runs on."""
