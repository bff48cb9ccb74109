"""Converts NumPy arrays of any type to arrays that files can hold, and back, for `milepost.plain_state.encoding`.

Text and byte strings of fixed length become byte strings. Dates and durations become int64. Numbers in the other byte order are
swapped. The original type is saved with the array, by NumPy's name: ``<U3``, ``<M8[ns]``, ``>f4``.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import numpy as np

from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.graph.adapter import Array
from milepost.tensor import DType

_MOST_PADDING: Final = 64 << 20
"""An array of text may take a thousand times the memory of its content, plus this many bytes."""
_NAMED: Final = re.compile(r"[<>|=]?[biufcSUmM]\d{0,12}(\[\w{1,12}\])?")


def to_stored(array: Array) -> tuple[Array, str | None]:
    """Converts an array to one that files can hold, without a copy if possible.

    Returns:
        The array, and the name of the original type, or None if the type is unchanged.

    Raises:
        UnsupportedError: Files cannot hold it.
    """
    dtype = array.dtype
    if dtype.kind in "US":
        stored = _encoded_text(array)
        if _padding(array.nbytes, stored) > _MOST_PADDING:
            raise UnsupportedError(
                "an array of text that is mostly padding cannot be saved",
                found=f"{dtype}, shape {array.shape}",
                remedy="use a list of str or bytes",
            )
        return stored, dtype.str
    if dtype.kind in "mM":
        return array.astype(dtype.newbyteorder("=")).view(np.ndarray).view(np.int64), dtype.str
    stored = array.astype(DType.of(dtype).numpy, copy=False).view(np.ndarray)
    return stored, None if dtype.isnative else dtype.str


def from_stored(stored: Array, name: str) -> Array:
    """Converts an array back to its original type.

    Args:
        stored: The array that `to_stored` returned.
        name: The name that it returned.

    Raises:
        CorruptCheckpointError: The array cannot have had this type.
    """
    dtype = dtype_of(name)
    if dtype.kind in "US" and stored.dtype.hasobject:
        return _decoded_text(stored, dtype)
    if dtype.kind in "mM" and stored.dtype == np.int64:
        return stored.view(dtype.newbyteorder("=")).astype(dtype, copy=False)
    if dtype.newbyteorder("=") == stored.dtype:
        return stored.astype(dtype)
    raise CorruptCheckpointError("an array of plain state has another type", expected=dtype, found=stored.dtype)


def dtype_of(name: Any) -> np.dtype[Any]:
    """The element type that has this name in TensorFlow or NumPy.

    Raises:
        CorruptCheckpointError: Arrays of plain state cannot have a type of this name.
    """
    if any(each.name == name and not each.is_bytes for each in DType.all()):
        return DType.of(name).numpy
    if not isinstance(name, str) or not _NAMED.fullmatch(name):
        raise CorruptCheckpointError("this is not an element type of plain state", found=f"{name!r:.80}")
    return np.dtype(name)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of a type for `dtype_of`, with its byte order."""
    return DType.of(dtype).name if dtype.kind == "V" else dtype.str


def shaped(items: list[Any], shape: list[int]) -> Array:
    """Makes an array of objects from its items.

    Raises:
        CorruptCheckpointError: The number of items does not fit the shape.
    """
    if math.prod(shape) != len(items):
        raise CorruptCheckpointError(
            "an array of plain state has another shape", expected=shape, found=f"{len(items)} elements"
        )
    array = np.empty(len(items), object)
    for number, item in enumerate(items):  # one by one, because NumPy would unpack items that are lists
        array[number] = item
    return array.reshape(shape)


def _encoded_text(array: Array) -> Array:
    items = array.reshape(-1).tolist()
    encoded = np.empty(len(items), object)
    encoded[:] = [each if isinstance(each, bytes) else each.encode("utf-8", "surrogatepass") for each in items]
    return encoded.reshape(array.shape)


def _decoded_text(array: Array, dtype: np.dtype[Any]) -> Array:
    items: list[Any] = array.reshape(-1).tolist()
    if _padding(dtype.itemsize * len(items), array) > _MOST_PADDING:
        raise CorruptCheckpointError("the stated length of an array of text is impossible", found=dtype)
    if dtype.kind == "U":
        items = [each.decode("utf-8", "surrogatepass") for each in items]
    return np.array(items, dtype).reshape(array.shape)


def _padding(size: int, encoded: Array) -> int:
    return size - 1000 * sum(map(len, encoded.reshape(-1).tolist()))
