"""Arrays as runs of bytes in files: row-major, in the byte order of the machine that wrote them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.tensor import DType, PiecewiseArray, TensorSpec

Array = np.ndarray[Any, Any]
Bytes = npt.NDArray[np.uint8]

_COMPLEX: Final = "cW"
"""The kinds of complex numbers of NumPy and of ml_dtypes."""
_ALIGNMENT: Final = 64
"""XLA uses the memory of an array without a copy if its address is a multiple of this."""
_WORTH_ALIGNING: Final = 16 << 10
"""The size of an array in bytes up to which a copy is as fast as an aligned allocation."""


def new_array(dtype: DType, shape: tuple[int, ...]) -> Array:
    """A new array for a tensor of a file.

    Raises:
        CorruptCheckpointError: No array can have this shape.
    """
    try:
        if not dtype.is_bytes and (size := math.prod(shape) * dtype.itemsize) >= _WORTH_ALIGNING:
            memory = np.empty(size + _ALIGNMENT, np.uint8)
            start = -memory.ctypes.data % _ALIGNMENT
            return memory[start : start + size].view(dtype.numpy).reshape(shape)
        return np.empty(shape, dtype.numpy)
    except ValueError as error:
        raise CorruptCheckpointError(
            "a shape that no array can have", expected=str(error), found=TensorSpec(dtype, shape)
        ) from None


def bytes_of(array: Array) -> Bytes:
    """The bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(np.uint8)


def object_array(elements: Sequence[bytes], shape: tuple[int, ...]) -> Array:
    """An array of byte strings.

    Raises:
        CorruptCheckpointError: No array can have this shape.
    """
    flat = np.empty(len(elements), object)
    flat[:] = elements
    try:
        return flat.reshape(shape)
    except ValueError as error:
        raise CorruptCheckpointError(
            "a shape that no array can have", expected=str(error), found=tuple(shape)
        ) from None


def blocks(array: Array | PiecewiseArray, most: int) -> Iterator[Array | PiecewiseArray]:
    """Cuts an array into views that follow each other in row-major order.

    Args:
        array: Any array, also one with another memory layout or in pieces.
        most: The largest number of bytes in a block. Only blocks of one element may have more.
    """
    if array.nbytes <= most or array.ndim == 0:
        yield array
        return
    row = array.nbytes // array.shape[0]
    if row > most:
        for part in array:
            yield from blocks(part, most)
        return
    rows = most // row
    for start in range(0, array.shape[0], rows):
        yield array[start : start + rows]


def scatter(target: Array, origin: Sequence[int], shape: Sequence[int], start: int, elements: Array) -> None:
    """Copies a run of elements of a tensor to their positions in a box.

    Args:
        target: The box.
        origin: The start of the box in the tensor, in each dimension.
        shape: The shape of the tensor.
        start: The row-major position of the first element in the tensor.
        elements: The elements, flat.
    """
    if not shape:
        target[...] = elements[0]
        return
    inner = math.prod(shape[1:])
    row, skipped = divmod(start, inner)
    if skipped:
        part, elements = np.split(elements, [inner - skipped])
        _scatter_row(target, origin, shape, row, skipped, part)
        row += 1
    rows = len(elements) // inner
    first, last = max(row, origin[0]), min(row + rows, origin[0] + target.shape[0])
    if first < last:
        whole = elements[: rows * inner].reshape(rows, *shape[1:])
        box = tuple(slice(o, o + n) for o, n in zip(origin[1:], target.shape[1:], strict=True))
        target[first - origin[0] : last - origin[0]] = whole[(slice(first - row, last - row), *box)]
    if len(elements) > rows * inner:
        _scatter_row(target, origin, shape, row + rows, 0, elements[rows * inner :])


def swap_bytes(data: Bytes, dtype: DType) -> None:
    """Swaps the bytes of elements in place. The two halves of a complex number are swapped separately.

    Raises:
        UnsupportedError: Bytes of these elements cannot be swapped.
    """
    if not dtype.has_byte_order:
        raise UnsupportedError(
            "elements of this type from a machine of the other byte order cannot be read",
            found=dtype,
            remedy="load the checkpoint on a machine of the byte order of the one that wrote it, and save each field as an array",
        )
    width = dtype.itemsize // 2 if dtype.numpy.kind in _COMPLEX else dtype.itemsize
    if width > 1:
        data.view(f"u{width}").byteswap(inplace=True)


def _scatter_row(
    target: Array, origin: Sequence[int], shape: Sequence[int], row: int, start: int, elements: Array
) -> None:
    if origin[0] <= row < origin[0] + target.shape[0]:
        scatter(target[row - origin[0], ...], origin[1:], shape[1:], start, elements)
