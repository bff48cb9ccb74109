"""PyTorch modules inside Keras layers. Keras has variables for their parameters, but not for their buffers.

The buffers are values of the layer, in a field of the object graph that TensorFlow skips.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from milepost.adapters.keras.backends import backend
from milepost.adapters.keras.layers import KerasLayerAdapter
from milepost.adapters.keras.private import TorchModuleWrapper
from milepost.adapters.torch.memory import write
from milepost.graph.adapter import Array, Value, register
from milepost.tensor import DType


class TorchModuleAdapter(KerasLayerAdapter):
    """`keras.layers.TorchModuleWrapper`."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, TorchModuleWrapper)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        # Keras has a variable for each of the module's parameters.
        return [(name, child) for name, child in super().children(obj) if child is not obj.module]

    def values(self, obj: Any) -> Sequence[Value]:
        return [_value(name, buffer) for name, buffer in _buffers(obj.module)]

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        for name, buffer in _buffers(obj.module):
            if name in arrays:
                write(buffer, arrays[name])
        return obj


def _buffers(module: Any) -> Iterator[tuple[str, Any]]:
    """The buffers in the module's ``state_dict``."""
    parameters = {name for name, _ in module.named_parameters()}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if name not in parameters:
            yield name, tensor


def _value(name: str, buffer: Any) -> Value:
    array = backend.read(buffer)
    return Value(
        name,
        DType.of(array),
        array.shape,
        lambda: backend.read(buffer),
        backend.memory(buffer),
        skipped_by_tensorflow=True,
    )


register(TorchModuleAdapter())
