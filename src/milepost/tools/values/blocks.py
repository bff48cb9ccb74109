"""Blocks of elements in the forms that statistics and differences compute with.

A block has as many elements as stay in the cache of a processor core, so what goes over it several times reads the memory once. Each form is
made once, though several differences and the statistics of a tensor need it. The blocks of a tensor use the same memory, one after the other
(`BlockMemory`): the system clears fresh memory, and to do so for each block would take longer than the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from milepost.bundle.memory import Array

_LENGTH: Final = 1 << 17
"""Elements of a block. As float64 they take a megabyte; for fewer the time that Python takes would count."""
_LEAST_SQUARE: Final = 1e-280
"""Sums of squares below this one may lack squares that were too small for a number."""
_ROW: Final = 1 << 13
"""Numbers that BLAS multiplies at once. For more it may start threads, which wait for each other where the machine is busy."""


class BlockMemory:
    """Memory for the arrays that are computed of a block. The next block uses it again.

    Example:
        >>> room = BlockMemory()
        >>> room.array("sums", np.float64, 3).size
        3
        >>> np.shares_memory(room.array("sums", np.float64, 3), room.array("sums", np.float64, 2))
        True
    """

    __slots__ = ("_arrays",)

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def array(self, purpose: str, dtype: Any, size: int) -> Array:
        """An array with any contents. What was returned before for the same purpose is no longer valid.

        Args:
            purpose: What it is for.
            dtype: The type of its elements: the same at each call for this purpose.
            size: How many it has.
        """
        buffer = self._arrays.get(purpose)
        if buffer is None or buffer.size < size:
            buffer = self._arrays[purpose] = np.empty(size, dtype)
        return buffer[:size]


class Block:
    """Some elements of a tensor.

    Args:
        elements: The elements, as a flat array. It must not change while the block is used.
        room: Memory for what is computed of it; by default the block has its own. A block is valid until another one gets the same.

    Attributes:
        elements: The elements.
        numbers: The elements in a type that NumPy computes with.
        finite: The finite ones of these numbers.
        least: The smallest finite number; None if there is none.
        most: The largest finite number; None if there is none.
        nan: How many elements are NaN.
        infinite: How many are infinite.
        room: The memory for what is computed of the block.

    Example:
        >>> block = Block(np.array([3.0, -4.0, np.nan, np.inf]))
        >>> block.least, block.most, block.norm, block.nan, block.infinite
        (-4.0, 3.0, 5.0, 1, 1)
    """

    __slots__ = ("_norm", "_values", "elements", "finite", "infinite", "least", "most", "nan", "numbers", "room")

    def __init__(self, elements: Array, room: BlockMemory | None = None) -> None:
        self.elements = elements
        self.room = BlockMemory() if room is None else room
        self.numbers = self.finite = as_numbers(elements, self.room)
        self.nan = self.infinite = 0
        self.least, self.most = _ends(self.numbers)
        if self.least is not None and not (math.isfinite(self.least) and math.isfinite(self.most)):
            self.finite = self.numbers[np.isfinite(self.numbers)]
            self.nan = int(np.count_nonzero(np.isnan(self.numbers)))
            self.infinite = self.numbers.size - self.finite.size - self.nan
            self.least, self.most = _ends(self.finite)
        self._values: Array | None = None
        self._norm: float | None = None

    @property
    def values(self) -> Array:
        """The finite numbers as float64."""
        if self._values is None:
            self._values = _converted(self.finite, np.float64, "values", self.room)
        return self._values

    @property
    def norm(self) -> float:
        """The norm of the finite numbers, as `norm_of` gives it."""
        if self._norm is None:
            self._norm = norm_of(self.values)
        return self._norm

    @property
    def is_real(self) -> bool:
        """Whether all elements are finite floating-point numbers that float64 can hold."""
        dtype = self.elements.dtype
        if dtype.kind in COMPLEX or dtype.kind in "mM" or is_wider(dtype):
            return False
        return self.numbers.dtype.kind == "f" and self.finite is self.numbers


def blocks_of(chunk: Array, room: BlockMemory) -> Iterator[Block]:
    """The elements of a chunk in blocks. Each is valid until the next one.

    Args:
        chunk: The elements, as a flat array.
        room: The memory for what is computed of one block after the other.

    Example:
        >>> [block.elements.size for block in blocks_of(np.zeros(200_000), BlockMemory())]
        [131072, 68928]
    """
    for start in range(0, chunk.size, _LENGTH):
        yield Block(chunk[start : start + _LENGTH], room)


COMPLEX: Final = "cW"
"""The kinds of complex types: those of NumPy, and those of ml_dtypes."""


def is_wider(dtype: np.dtype[Any]) -> bool:
    """Whether a type has floating-point numbers that float64 rounds, as `longdouble` has on most machines."""
    return (dtype.kind == "f" and dtype.itemsize > 8) or (dtype.kind == "c" and dtype.itemsize > 16)


def as_numbers(elements: Array, room: BlockMemory | None = None) -> Array:
    """Elements in a type that NumPy computes with: wider floating-point numbers for small ones, absolute values of complex ones.

    Args:
        elements: The elements.
        room: The memory for floating-point numbers, if there is some. They are valid until it is used again.
    """
    kind = elements.dtype.kind
    if kind in COMPLEX:
        with np.errstate(invalid="ignore"):
            return np.abs(elements.astype(np.complex128))
    if kind == "b":
        return elements.view(np.uint8)
    if kind in "iuf" and elements.dtype.itemsize >= (4 if kind == "f" else 1) and elements.dtype.isbuiltin == 1:
        return elements
    numbers = _converted(
        elements, np.float32, "numbers", room
    )  # all elements of the small types are numbers of float32, too
    return numbers.astype(np.int64) if _is_small_integer(elements.dtype) else numbers


def _converted(elements: Array, dtype: Any, purpose: str, room: BlockMemory | None) -> Array:
    """Elements in another type, or as they are if they have it."""
    if room is None or elements.dtype == dtype:
        return elements.astype(dtype, copy=False)
    converted = room.array(purpose, dtype, elements.size).reshape(elements.shape)
    np.copyto(converted, elements, casting="unsafe")
    return converted


def _ends(numbers: Array) -> tuple[Any, Any]:
    """The smallest and the largest number; NaN if one is NaN, and None if there are none."""
    return (np.minimum.reduce(numbers).item(), np.maximum.reduce(numbers).item()) if numbers.size else (None, None)


def norm_of(values: Array) -> float:
    """The square root of the sum of squares, also where a square would be too large or too small for a number.

    Args:
        values: Numbers in float64, none of which is NaN, as a flat array.

    Example:
        >>> f"{norm_of(np.array([6e200, 8e200])):.6g}"
        '1e+201'
    """
    if not values.size:
        return 0.0
    with np.errstate(over="ignore", under="ignore"):
        total = sum_of_squares(values)
    if _LEAST_SQUARE < total < math.inf:
        return math.sqrt(total)
    largest = float(np.abs(values).max())
    if not 0.0 < largest < math.inf:
        return largest
    return largest * math.sqrt(float(np.square(values / largest).sum()))


def norms_of(values: Array, largest: Any, starts: Any, lengths: Any) -> Any:
    """What `norm_of` is of each part of an array, also where a square would be too large or too small for a number.

    Args:
        values: Numbers from 0 on, of all parts.
        largest: The largest of each part.
        starts: Where each part begins.
        lengths: How many numbers each has.
    """
    total = np.add.reduceat(np.square(values), starts)
    if (((total > _LEAST_SQUARE) & np.isfinite(total)) | (largest == 0)).all():
        return np.sqrt(total)
    # each part is first divided by its largest value
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    squares = np.add.reduceat(np.square(values / np.repeat(scale, lengths)), starts)
    return np.where(np.isfinite(largest), scale * np.sqrt(squares), largest)


def sum_of_squares(values: Array) -> float:
    """The sum of the squares of numbers in float64. It may be infinite, and may lack squares that were too small for a number."""
    if values.size <= _ROW:
        return float(np.dot(values, values))
    whole = values.size - values.size % _ROW
    rows, rest = values[:whole].reshape(-1, 1, _ROW), values[whole:]
    squares = np.matmul(rows, rows.swapaxes(1, 2))
    return float(np.add.reduce(squares, axis=None)) + float(np.dot(rest, rest))


def _is_small_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.name in ("int1", "int2", "int4", "uint1", "uint2", "uint4")
