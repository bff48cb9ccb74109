"""Tensors on GPUs of CUDA and ROCm, which are copied when they are written, and read in parts.

So a save and a restore hold no second copy of them in the memory of this machine. An asynchronous save copies them into memory that
it keeps. A GPU copies several times faster from and into memory that is pinned, which means that the system does not move it and does
not swap it out.
Source: the CUDA Runtime API, ``cudaHostRegister``.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Final

import torch

from milepost.adapters.torch.distributed.local_shards import ORDINARY
from milepost.adapters.torch.memory import as_array, as_tensor, dtype_of, has_copy, write
from milepost.graph.adapter import Array, StoredTensor
from milepost.tensor import OnDevice, Piece, PiecewiseArray, TensorSlice
from milepost.tensor.pieces import Slices

_SMALL: Final = 64 << 10
"""The most bytes of a tensor that is copied at once. Its place in a list of pieces would take longer."""
_PART: Final = 16 << 20
"""The most bytes of a saved value that are read at a time."""


def elements(tensor: torch.Tensor) -> Array | PiecewiseArray:
    """The value of a tensor to be saved. It is not copied if NumPy can share its memory, or if it is large and on a GPU."""
    return in_place(tensor) if is_large(tensor) else as_array(tensor)


def is_large(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on a GPU and so large that it is copied part by part."""
    return tensor.is_cuda and tensor.nbytes > _SMALL and _is_plain(tensor)


def in_place(tensor: torch.Tensor) -> PiecewiseArray:
    """The elements of a plain tensor on any device, which are copied when they are read."""
    shape = tuple(tensor.shape)
    return PiecewiseArray(dtype_of(tensor.dtype).numpy, shape, [Piece((0,) * len(shape), shape, OnGpu(tensor))])


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in ORDINARY
        and tensor.layout is torch.strided
        and not (tensor.is_conj() or tensor.is_neg())
        and has_copy(tensor.dtype)
        and bool(tensor.untyped_storage().nbytes())  # otherwise as_array() refuses it
    )


class OnGpu(OnDevice):
    """The elements of a plain tensor.

    They are copied after what the program has asked of the GPU so far, in the stream that the program used when this object was made. Other
    threads have other streams, which do not wait for it.

    Args:
        tensor: The tensor.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor.detach()
        self._stream = torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None

    def __getitem__(self, box: Slices, /) -> Array:
        with self._in_stream():
            return as_array(self._tensor[box])

    def copy_into(self, box: Slices, destination: Array) -> None:
        with torch.no_grad(), self._in_stream():
            as_tensor(destination, self._tensor.dtype).copy_(self._tensor[box])

    def prepare(self, memory: Array) -> None:
        if self._tensor.is_cuda:
            _pin(memory, self._tensor.device)

    def _in_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)


def _pin(memory: Array, device: torch.device) -> None:
    """Pins whole pages of memory until it is freed. Where the system refuses that, copies are slower."""
    runtime: Any = torch.cuda.cudart()
    address = memory.ctypes.data
    if runtime.cudaHostRegister(address, memory.nbytes, 0) == runtime.cudaError.success:
        owner = memory if memory.base is None else memory.base
        weakref.finalize(owner, runtime.cudaHostUnregister, address).atexit = False
        return
    with suppress(RuntimeError):
        torch.zeros(1, device=device)  # gets the error that CUDA remembers; otherwise the program would get it


_idle: Final[list[list[torch.Tensor]]] = []
"""Pinned memory for two parts, if no restore uses it at the moment. Each restore of a tensor takes some, so that several threads can restore."""


def read_into(tensor: torch.Tensor, stored: StoredTensor) -> None:
    """Reads a saved value into a contiguous tensor of its type and shape on a GPU. A part is read while the GPU copies the part before it.

    Args:
        tensor: The tensor, for which `is_large` is true.
        stored: The value.
    """
    shape, itemsize = tuple(tensor.shape), tensor.element_size()
    if not stored.in_one_run:
        write(tensor, stored.read(TensorSlice(tuple((0, length) for length in shape))))
        return
    memory = _idle.pop() if _idle else [torch.empty(_PART, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    stream = torch.cuda.current_stream(tensor.device)
    halves = itertools.cycle([(half, torch.cuda.Event()) for half in memory])
    with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
        target = tensor.detach().reshape(-1).view(torch.uint8)
        start = 0
        for box, (half, copied) in zip(boxes(shape, itemsize, _PART), halves, strict=False):
            copied.synchronize()  # the GPU has copied the part before the last, so its memory can be used again
            lengths = [length for _, length in box]
            part = half[: math.prod(lengths) * itemsize]
            stored.read_into(TensorSlice(box), part.numpy().view(stored.dtype).reshape(lengths))
            target[start : start + part.nbytes].copy_(part, non_blocking=True)
            copied.record(stream)
            start += part.nbytes
    stream.synchronize()
    _idle[:] = [memory]


def boxes(shape: tuple[int, ...], itemsize: int, most: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Cuts a tensor into boxes that follow each other in row-major order.

    Args:
        shape: The shape of the tensor.
        itemsize: Bytes of an element.
        most: The most bytes of a box.

    Returns:
        The boxes, as the start and the length in each dimension.
    """
    whole = tuple((0, length) for length in shape)
    if math.prod(shape) * itemsize <= most:
        yield whole
        return
    rows = most // (math.prod(shape[1:]) * itemsize)
    if rows:
        for start in range(0, shape[0], rows):
            yield ((start, min(rows, shape[0] - start)), *whole[1:])
        return
    for row in range(shape[0]):
        for rest in boxes(shape[1:], itemsize, most):
            yield ((row, 1), *rest)
