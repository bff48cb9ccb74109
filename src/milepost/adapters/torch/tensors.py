"""PyTorch tensors as values: parameters, buffers, slot variables, and tensors in attributes.

A tensor on the CPU is restored in its own memory. A tensor on the meta device has no memory. A restore gives it some and keeps its
identity, so that optimizers and tied modules keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch

from milepost.adapters.optimizer_settings import STRIDES
from milepost.adapters.torch.distributed.local_shards import ORDINARY
from milepost.adapters.torch.hints import GRADIENT, HINTS, PLAIN, hints_of
from milepost.adapters.torch.layouts import empty_with_strides, strides_to_save
from milepost.adapters.torch.memory import (
    as_tensor,
    changed,
    dtype_of,
    memory,
    must_have_memory,
    torch_dtype,
    version_of,
    write,
)
from milepost.adapters.torch.on_gpu import elements, is_large, read_into
from milepost.adapters.torch.optimizers.leaves import before_gradient, gradient_to_save, set_gradient
from milepost.adapters.torch.private import is_traceable_wrapper_subclass, swap_tensors
from milepost.adapters.torch.refused import refusal_of
from milepost.errors import UnsupportedError
from milepost.graph.adapter import Adapter, Array, StoredTensor, Value, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.omissions import Omission
from milepost.tensor import TensorSlice, TensorSpec

_USUAL: Final = frozenset({torch.Tensor, torch.nn.Parameter})
"""Classes that consist of one tensor."""


class TensorAdapter(Adapter):
    """`torch.Tensor`, `torch.nn.Parameter`, and subclasses that consist of several tensors."""

    leaf = True
    hints = HINTS
    array_type = "torch.Tensor"

    def handles(self, kind: type) -> bool:
        return issubclass(kind, torch.Tensor)

    def may_refuse(self, obj: Any) -> bool:
        return False

    def is_value(self, obj: Any) -> bool:
        return not isinstance(obj, torch.nn.Parameter) and not obj.requires_grad

    def is_new_array(self, obj: Any) -> bool:
        return type(obj) is torch.Tensor and obj.is_cpu and not obj.requires_grad

    def new_array(self, spec: TensorSpec, hints: Mapping[str, Array]) -> Any:
        return torch.empty(spec.shape, dtype=torch_dtype(spec.dtype), device="meta")

    def tracks(self, obj: Any) -> bool:
        return refusal_of(obj) is None

    def omission(self, obj: Any) -> Omission | None:
        return refusal_of(obj)

    def values(self, obj: Any) -> Sequence[Value]:
        return [_value(prefix, part) for prefix, part in _parts(obj)]

    def version(self, obj: Any) -> Any:
        versions = [version_of(part) for _, part in _parts(obj)]
        return None if None in versions else versions

    def hints_to_save(self, obj: Any) -> Mapping[str, Array]:
        hints, kept = {}, hints_of.get(obj) or ()
        is_one = type(obj) in _USUAL or len(_parts(obj)) == 1
        strides = strides_to_save(obj, keep=STRIDES in kept) if is_one else None
        if strides is not None:
            hints[STRIDES] = strides
        gradient = gradient_to_save(obj) if GRADIENT in kept else None
        if gradient is not None:
            hints[GRADIENT] = gradient
        if PLAIN in kept:
            hints[PLAIN] = np.array(True)
        return hints

    def before_assign(self, obj: Any) -> Callable[[], object]:
        if any(value.destination is not None for value in self.values(obj)):
            # It is assigned only if it is reshaped, and then gets other memory.
            former = obj.data
            return lambda: setattr(obj, "data", former)
        put_back, kept = super().before_assign(obj), hints_of.get(obj) or ()
        if not kept:
            return put_back
        former = obj.data
        become_again = before_gradient(obj) if GRADIENT in kept else None

        def put_all_back() -> None:
            if obj.data_ptr() != former.data_ptr():
                obj.data = former
            put_back()
            if become_again is not None:
                become_again()

        return put_all_back

    def assign(self, obj: Any, arrays: Mapping[str, Any]) -> Any:
        strides, gradient = arrays.get(STRIDES), arrays.get(GRADIENT)
        kept: Collection[str] = ()
        if not self.hints.isdisjoint(arrays):
            arrays = {name: array for name, array in arrays.items() if name not in self.hints}
            kept = hints_of.get(obj) or ()
        if gradient is not None and GRADIENT in kept:
            set_gradient(obj, gradient)
        parts = _parts(obj)
        if len(parts) == 1 and _has_other_shape(obj, arrays):
            obj.data = as_tensor(_copied(arrays[VARIABLE_VALUE]), obj.dtype).to(home_of(obj))
            return obj
        if len(parts) == 1 and obj.is_meta:
            return _materialised(obj, next(iter(arrays.values())), strides)
        if strides is not None and STRIDES in kept and strides.tolist() != list(obj.stride()):
            obj.data = empty_with_strides(obj, obj.device, strides)
            parts = _parts(obj)
        if len(parts) == 1 and not obj.is_contiguous() and _overlaps_itself(obj):
            return as_tensor(next(iter(arrays.values())), obj.dtype).to(obj.device)
        for prefix, part in parts:
            array = arrays.get(prefix or VARIABLE_VALUE)
            if isinstance(array, np.ndarray):
                write(part, array)
            elif array is not None:
                read_into(part, array)
        return obj

    def on_restored(self, obj: Any) -> None:
        for _, part in _parts(obj):
            changed(part)  # the value may have been read into its memory


def _has_other_shape(tensor: torch.Tensor, arrays: Mapping[str, Array | StoredTensor]) -> bool:
    """Whether a tensor gets a value of another shape, because its module reshapes it (`reshaping`)."""
    array = arrays.get(VARIABLE_VALUE)
    return array is not None and array.shape != tuple(tensor.shape)


def _copied(array: Array | StoredTensor) -> Array:
    if isinstance(array, np.ndarray):
        return array.copy()
    return array.read(TensorSlice(tuple((0, length) for length in array.shape)))


def _parts(tensor: Any, prefix: str = "") -> list[tuple[str, torch.Tensor]]:
    """The plain tensors that a tensor consists of, with their names. A plain tensor is its only part, and has no name."""
    if type(tensor) in ORDINARY or not is_traceable_wrapper_subclass(tensor):
        return [(prefix, tensor)]
    names, _ = tensor.__tensor_flatten__()
    parts = []
    for name in names:
        parts += _parts(getattr(tensor, name), f"{prefix}.{name}" if prefix else name)
    return parts


def _value(prefix: str, tensor: torch.Tensor) -> Value:
    name, dtype, shape = prefix or VARIABLE_VALUE, dtype_of(tensor.dtype), tuple(tensor.shape)
    if tensor.is_meta:
        return Value(name, dtype, shape, lambda: no_value(tensor))
    must_have_memory(tensor)
    destination = None if hints_of.get(tensor) else memory(tensor)
    if destination is not None:
        return Value(name, dtype, shape, destination, destination)
    is_read_in_parts = tensor.is_contiguous() and not hints_of.get(tensor) and is_large(tensor)
    return Value(name, dtype, shape, lambda: elements(tensor), in_boxes=is_read_in_parts)


def no_value(tensor: torch.Tensor) -> Array:
    """Refuses to save a tensor on the meta device.

    Raises:
        UnsupportedError: Always.
    """
    raise UnsupportedError(
        "a tensor on the meta device has no value to save",
        found=f"{tensor.dtype} of shape {tuple(tensor.shape)} on the meta device",
        remedy="restore it or initialize it first",
    )


def home_of(tensor: torch.Tensor) -> torch.device:
    """The device of a tensor after a restore."""
    if not tensor.is_meta:
        return tensor.device
    default = torch.get_default_device()
    return torch.device("cpu") if default.type == "meta" else default


def _materialised(tensor: torch.Tensor, array: Array, strides: Array | None) -> torch.Tensor:
    value = as_tensor(array, tensor.dtype).to(home_of(tensor))
    if strides is not None and tensor.is_contiguous():
        value = empty_with_strides(tensor, value.device, strides).copy_(value)
    elif not value.is_contiguous(memory_format=torch.preserve_format) or value.stride() != tensor.stride():
        value = torch.empty_strided(tensor.shape, tensor.stride(), dtype=value.dtype, device=value.device).copy_(value)
    value.requires_grad_(tensor.requires_grad)
    # Swaps the contents. The class, the attributes and weak references stay with the object.
    swap_tensors(tensor, value)
    return tensor


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether several elements share memory, as in a result of `expand`. Such a tensor cannot be written."""
    return any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True))


register(TensorAdapter())
