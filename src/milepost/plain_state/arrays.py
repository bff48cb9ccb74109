"""Converts NumPy arrays of any type to arrays that files can hold, and back, for `milepost.plain_state.encoding`.

Text and byte strings become byte strings. Dates and durations become int64. Numbers in the other byte order are
swapped. The original type is saved with the array, by NumPy's name: ``<U3``, ``StringDType()``, ``<M8[ns]``, ``>f4``.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import numpy as np

from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.graph.adapter import Array
from milepost.tensor import DType
from milepost.tensor.dtype import STRING

_MOST_PADDING: Final = 64 << 20
"""An array of text may take a thousand times the memory of its content. All such arrays of a state may take this many bytes more."""
_NAMED: Final = re.compile(r"[<>|=]?[biufcSUmM]\d{0,12}(\[\w{1,12}\])?")
_TEXT: Final = "SUT"
"""The kinds of NumPy's types of bytes and text."""
_STRINGS: Final = "StringDType()"
"""The name of NumPy's type of text of any length."""


class Padding:
    """How much of the memory of arrays of text is padding, in all such arrays of one state."""

    def __init__(self) -> None:
        self._left = _MOST_PADDING

    def fits(self, size: int, encoded: Array) -> bool:
        """Whether an array may be made, together with those before it.

        Args:
            size: The bytes of the array.
            encoded: Its elements as byte strings.
        """
        self._left -= max(0, size - 1000 * sum(map(len, encoded.reshape(-1).tolist())))
        return self._left >= 0


def to_stored(array: Array, padding: Padding) -> tuple[Array, str | None]:
    """Converts an array to one that files can hold, without a copy if possible.

    Args:
        array: The array.
        padding: That of the arrays before it in the same state.

    Returns:
        The array, and the name of the original type, or None if the type is unchanged.

    Raises:
        UnsupportedError: Files cannot hold it.
    """
    dtype = array.dtype
    if dtype.kind in _TEXT:
        stored = _encoded_text(array)
        if not padding.fits(array.nbytes, stored):
            raise UnsupportedError(
                "arrays of text that are mostly padding cannot be saved",
                found=f"{dtype}, shape {array.shape}",
                remedy="use a list of str or bytes",
            )
        return stored, type_name(dtype)
    if dtype.kind in "mM":
        return array.astype(dtype.newbyteorder("=")).view(np.ndarray).view(np.int64), dtype.str
    stored = array.astype(DType.of(dtype).numpy, copy=False).view(np.ndarray)
    return stored, None if dtype.isnative else dtype.str


def from_stored(stored: Array, name: str, padding: Padding) -> Array:
    """Converts an array back to its original type.

    Args:
        stored: The array that `to_stored` returned.
        name: The name that it returned.
        padding: That of the arrays before it in the same state.

    Raises:
        CorruptCheckpointError: The array cannot have had this type.
    """
    dtype = dtype_of(name)
    if dtype.kind in _TEXT and stored.dtype.hasobject:
        return _decoded_text(stored, dtype, padding)
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
    if name == _STRINGS and hasattr(np.dtypes, "StringDType"):
        return np.dtypes.StringDType()
    if isinstance(name, str) and _NAMED.fullmatch(name):
        return np.dtype(name)
    try:
        dtype = DType.of(name) if any(each.name == name for each in DType.all()) else DType.named(name)
    except (UnsupportedError, TypeError):
        dtype = STRING
    if dtype.is_bytes:
        raise CorruptCheckpointError("this is not an element type of plain state", found=f"{name!r:.80}")
    return dtype.numpy


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of a type for `dtype_of`, with its byte order."""
    return dtype.str if _NAMED.fullmatch(dtype.str) else DType.of(dtype).name


def type_name(dtype: np.dtype[Any]) -> str:
    """NumPy's name of a type of text or of numbers, for `from_stored`."""
    return _STRINGS if dtype.kind == "T" else dtype.str


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
    try:
        encoded[:] = [each if isinstance(each, bytes) else each.encode("utf-8", "surrogatepass") for each in items]
    except AttributeError:
        raise UnsupportedError(
            "an array of text has members that are missing",
            found=f"{array.dtype}, shape {array.shape}",
            remedy="give these members a text",
        ) from None
    return encoded.reshape(array.shape)


def _decoded_text(array: Array, dtype: np.dtype[Any], padding: Padding) -> Array:
    items: list[Any] = array.reshape(-1).tolist()
    if not padding.fits(dtype.itemsize * len(items), array):
        raise CorruptCheckpointError("the stated length of an array of text is impossible", found=dtype)
    if dtype.kind != "S":
        items = [each.decode("utf-8", "surrogatepass") for each in items]
    return np.array(items, dtype).reshape(array.shape)
