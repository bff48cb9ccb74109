"""Tensors in several pieces of memory, such as those that are spread over devices.

They are written box by box, so that the whole tensor is never copied.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

Array = np.ndarray[Any, Any]
Slices = tuple[slice, ...]
"""A box as the index of an array: a slice with bounds for each dimension."""


class PieceSource(Protocol):
    """The elements of a piece: an array, or an object that fetches them when they are written."""

    def __getitem__(self, box: Slices, /) -> Array:
        """The elements of a box."""
        ...


class OnDevice(ABC):
    """The elements of a piece that lie on a device, such as a GPU. They are copied when they are read.

    Example:
        >>> class Far(OnDevice):
        ...     def __init__(self, read):
        ...         self.read = read
        ...     def __getitem__(self, box):
        ...         return self.read(box)
        >>> far = Far(lambda box: np.arange(6)[box])
        >>> np.asarray(PiecewiseArray(np.dtype(int), (6,), [Piece((0,), (6,), far)])[2:4])
        array([2, 3])
    """

    @abstractmethod
    def __getitem__(self, box: Slices, /) -> Array:
        """A copy of the elements of a box."""

    def copy_into(self, box: Slices, destination: Array) -> None:
        """Copies the elements of a box.

        Args:
            box: The box.
            destination: An array of the shape of the box. It need not be contiguous.
        """
        destination[...] = self[box]

    def prepare(self, memory: Array) -> None:  # noqa: B027 - most devices need nothing
        """Makes copies from the device faster that go into some memory.

        Args:
            memory: Whole pages of memory, in a larger array to which they belong.
        """

    @classmethod
    def held(cls, sources: Sequence[Self]) -> Sequence[PieceSource] | None:
        """The present elements of each of some pieces, which never change. They may be copied while the program continues.

        Returns:
            None if the device has no way to do this. Then `copy_into` is called for each piece.
        """
        return None


class Piece(NamedTuple):
    """One piece of a tensor.

    Attributes:
        start: Its first position in the tensor, in each dimension.
        shape: Its shape.
        source: Its elements.
    """

    start: tuple[int, ...]
    shape: tuple[int, ...]
    source: PieceSource


class PiecewiseArray:
    """A tensor, or a box cut from one, whose elements lie in several pieces.

    It has the attributes of an array that a writer needs: element type, shape, boxes cut from it, and a copy.

    Args:
        dtype: The element type.
        shape: The shape of the tensor.
        pieces: Pieces that cover it.
        constant: Whether the elements never change, whatever the program does. An asynchronous save does not copy them then.

    Example:
        >>> halves = [Piece((0,), (2,), np.array([1, 2])), Piece((2,), (2,), np.array([3, 4]))]
        >>> np.asarray(PiecewiseArray(np.dtype(int), (4,), halves)[1:3])
        array([2, 3])
    """

    __slots__ = ("_pieces", "_start", "constant", "dtype", "shape")

    def __init__(
        self, dtype: np.dtype[Any], shape: Sequence[int], pieces: Sequence[Piece], *, constant: bool = False
    ) -> None:
        self.dtype = dtype
        self.shape = tuple(shape)
        self.constant = constant
        self._start = (0,) * len(self.shape)
        self._pieces = tuple(pieces)

    @property
    def on_device(self) -> Sequence[OnDevice]:
        """The elements of each piece, if all lie on devices of one kind; otherwise nothing."""
        sources = [piece.source for piece in self._pieces]
        on_device = [source for source in sources if isinstance(source, OnDevice)]
        return on_device if len(on_device) == len(sources) and len(set(map(type, on_device))) == 1 else ()

    def held(self, sources: Sequence[PieceSource]) -> Self:
        """The same with other sources of its pieces, which never change."""
        pieces = [piece._replace(source=source) for piece, source in zip(self._pieces, sources, strict=True)]
        other = type(self)(self.dtype, self.shape, pieces, constant=True)
        other._start = self._start
        return other

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __getitem__(self, index: int | slice | Slices) -> Self:
        """A box. A number as an index selects a row, and the result lacks that dimension."""
        row = not isinstance(index, (slice, tuple))
        first = slice(index, index + 1) if isinstance(index, int) else index
        ranges = (first,) if isinstance(first, slice) else first
        cut = type(self)(self.dtype, self.shape, self._pieces, constant=self.constant)
        start, shape = list(self._start), list(self.shape)
        offset = len(start) - len(shape)  # dimensions in which a row was selected
        for axis, part in enumerate(ranges):
            begin, stop, _ = part.indices(shape[axis])
            start[offset + axis] += begin
            shape[axis] = max(stop - begin, 0)
        cut._start = tuple(start)
        cut.shape = tuple(shape[1:] if row else shape)
        return cut

    def __iter__(self) -> Iterator[Self]:
        return (self[row] for row in range(self.shape[0]))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """The elements. They are a view if they lie in one piece whose source returns views."""
        box = self._box()
        overlaps = [part for piece in self._pieces if (part := _overlap(piece, box)) is not None]
        if len(overlaps) == 1:
            piece, source, _ = overlaps[0]
            # NumPy gives a number, and no array, for all of an array without dimensions.
            array = np.asarray(piece.source[source]).reshape(self.shape)
        else:
            array, copy = np.empty(self.shape, self.dtype), False
            self.copy_into(array)
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def copy(self) -> Array:
        """A copy of the elements."""
        return self.__array__(copy=True)

    def copy_into(self, destination: Array) -> None:
        """Copies the elements.

        Args:
            destination: A contiguous array of the same shape and element type.
        """
        box = self._box()
        whole = destination.reshape(tuple(stop - start for start, stop in box))
        for piece in self._pieces:
            part = _overlap(piece, box)
            if part is not None:
                _, source, target = part
                if isinstance(piece.source, OnDevice):
                    index: tuple[Any, ...] = (*target, ...)  # gives an array, even without dimensions
                    piece.source.copy_into(source, whole[index])
                else:
                    whole[target] = piece.source[source]

    def _box(self) -> list[tuple[int, int]]:
        lengths = (1,) * (len(self._start) - len(self.shape)) + self.shape
        return [(start, start + length) for start, length in zip(self._start, lengths, strict=True)]


def _overlap(piece: Piece, box: Sequence[tuple[int, int]]) -> tuple[Piece, Slices, Slices] | None:
    """The part of a piece that lies in a box: relative to the piece, and to the box."""
    source, target = [], []
    for first, length, (start, stop) in zip(piece.start, piece.shape, box, strict=True):
        begin, end = max(first, start), min(first + length, stop)
        if begin >= end:
            return None
        source.append(slice(begin - first, end - first))
        target.append(slice(begin - start, end - start))
    return piece, tuple(source), tuple(target)
