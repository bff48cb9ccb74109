"""Converts tensors to arrays that share their memory, and back.

Each element type has a NumPy type with the same bits. Some of these are in ml_dtypes. `milepost.tensor.DType` makes those that neither
has.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
import torch

from milepost.errors import UnsupportedError
from milepost.graph.adapter import Array
from milepost.tensor import DType

_BUILT_IN: Final = 1
"""``numpy.dtype.isbuiltin`` of NumPy's own types, which PyTorch converts."""


@functools.cache
def dtype_of(dtype: torch.dtype) -> DType:
    """milepost's name of an element type.

    Raises:
        UnsupportedError: This milepost does not know the type.
    """
    return DType.of(str(dtype).removeprefix("torch."))


_LOOKED_AT: Final = 64
"""How many elements of a tensor tell, about, that it has changed."""


def as_array(tensor: torch.Tensor) -> Array:
    """The value of a tensor. The array shares the tensor's memory if that is on the CPU and NumPy has its layout."""
    must_have_memory(tensor)
    return _array_of(tensor.detach().resolve_conj().resolve_neg().cpu())


def _array_of(tensor: torch.Tensor) -> Array:
    """The value of a tensor on the CPU that is neither conjugated nor negated lazily, and that requires no gradient."""
    dtype = dtype_of(tensor.dtype)
    if dtype.numpy.isbuiltin == _BUILT_IN:
        array: Array = tensor.numpy()
        return array
    if not tensor.numel():
        return np.empty(tuple(tensor.shape), dtype.numpy)
    array = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return array.view(dtype.numpy).reshape(tensor.shape)


def memory(tensor: torch.Tensor) -> Array | None:
    """The memory of a tensor, if a restore can read a saved value into it; otherwise None."""
    if (
        not tensor.is_cpu
        or tensor.layout is not torch.strided
        or not tensor.is_contiguous()
        or not tensor.numel()
        or tensor.is_conj()
        or tensor.is_neg()
    ):
        return None
    return _array_of(tensor.detach())


def must_have_memory(tensor: torch.Tensor) -> None:
    """Refuses a tensor whose memory was freed, as it is by ``untyped_storage().resize_(0)``. To read or write it would end the process.

    Raises:
        UnsupportedError: The tensor has elements and no memory.
    """
    if (tensor.is_cpu or tensor.is_cuda) and tensor.numel() and not tensor.untyped_storage().nbytes():
        raise UnsupportedError(
            "the memory of this tensor was freed",
            expected=f"memory for {tensor.dtype} of shape {tuple(tensor.shape)}",
            found="a storage of 0 bytes",
            remedy="save and restore while the tensor has its memory, before untyped_storage().resize_(0) or after it is resized again",
        )


def as_tensor(array: Array, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The tensor whose stored value is an array. The tensor shares the array's memory, which must be writable.

    Args:
        array: A value as `as_array` returns it.
        dtype: The tensor's element type; by default that of the array.

    Raises:
        UnsupportedError: PyTorch has no such element type.
    """
    if dtype is None:
        dtype = torch_dtype(DType.of(array))
    if not array.size:
        return torch.empty(array.shape, dtype=dtype, device="cpu")
    array = np.require(array, requirements=["C", "W"])
    if dtype_of(dtype).numpy.isbuiltin == _BUILT_IN:
        return torch.from_numpy(array)
    flat = torch.from_numpy(array.reshape(-1).view(np.uint8))
    return flat.view(dtype).reshape(array.shape)


def torch_dtype(dtype: DType) -> torch.dtype:
    """PyTorch's element type of this name.

    Raises:
        UnsupportedError: PyTorch has none.
    """
    element_type = getattr(torch, dtype.name, None)
    if not isinstance(element_type, torch.dtype):
        raise UnsupportedError(
            "PyTorch has no such element type", found=dtype, remedy="read the value with milepost.load_variable()"
        )
    return element_type


def write(tensor: torch.Tensor, array: Array) -> None:
    """Assigns a value to a tensor on any device and with any strides.

    Args:
        tensor: The tensor.
        array: The value, of the tensor's stored type and shape.
    """
    source = as_tensor(array, tensor.dtype)
    with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
        target = tensor.detach()
        if has_copy(tensor.dtype):
            target.copy_(source)
        else:
            target.view(torch.uint8).copy_(source.view(torch.uint8))


def changed(tensor: Any) -> None:
    """Tells automatic differentiation that the memory of a tensor was written to without it."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def version_of(tensor: torch.Tensor) -> tuple[int, int, bytes] | None:
    """What tells that the elements of a tensor have changed: where they are, how often PyTorch has seen them written, and some of them.

    PyTorch does not count what is written through ``.data`` or an array of NumPy. Of such a change, the elements that are looked at tell, unless it
    leaves all of them as they were.
    """
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_inference() or not tensor.is_contiguous():
        return None
    flat = tensor.detach().view(-1)
    some = flat[:: max(1, flat.numel() // _LOOKED_AT)].cpu().contiguous()
    return tensor.data_ptr(), tensor._version, some.view(torch.uint8).numpy().tobytes()


@functools.cache
def has_copy(dtype: torch.dtype) -> bool:
    """Whether PyTorch can copy elements of a type."""
    try:
        torch.empty(1, dtype=dtype, device="cpu").copy_(torch.empty(1, dtype=dtype, device="cpu"))
    except (RuntimeError, NotImplementedError):
        return False
    return True
