"""Tensors whose parts are held by several processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from milepost.errors import MismatchError, UnsupportedError
from milepost.tensor.pieces import PiecewiseArray
from milepost.tensor.slice import TensorSlice


class Shard(NamedTuple):
    """A box of a tensor that this process holds.

    Attributes:
        start: Where it begins in the tensor, in each dimension.
        array: Its elements.
        holders: The numbers of all processes that hold this very box, this one among them, ascending.
    """

    start: tuple[int, ...]
    array: np.ndarray[Any, Any] | PiecewiseArray
    holders: tuple[int, ...]


class ShardedArray:
    """A tensor that several processes hold together, as one of them sees it.

    Args:
        dtype: The element type.
        shape: The shape of the whole tensor.
        shards: The boxes that this process holds; it may hold none. Any two boxes of the processes are equal or do not
            overlap, and all boxes cover the tensor.
        layout: Says in words how the tensor is spread, for messages. It is the same on all processes that hold the tensor.

    Example:
        >>> half = Shard((0,), np.zeros(2, np.float32), holders=(0, 2))
        >>> ShardedArray(np.dtype(np.float32), (4,), [half], "halves, twice").nbytes
        16
    """

    __slots__ = ("dtype", "layout", "shape", "shards")

    def __init__(self, dtype: np.dtype[Any], shape: Sequence[int], shards: Sequence[Shard], layout: str) -> None:
        self.dtype = dtype
        self.shape = tuple(shape)
        self.shards = tuple(shards)
        self.layout = layout

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Raises an error, because no process holds the whole tensor.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "other processes hold parts of this tensor",
            expected="a tensor that this process holds completely",
            found=self.layout,
            remedy="let all processes save together: call save() on each of them",
        )

    def copy(self) -> ShardedArray:
        """The same boxes in memory of their own."""
        shards = [shard._replace(array=shard.array.copy()) for shard in self.shards]
        return ShardedArray(self.dtype, self.shape, shards, self.layout)

    def whole(self) -> np.ndarray[Any, Any] | PiecewiseArray | None:
        """All of the tensor, if this process holds it in one box; otherwise None."""
        if not math.prod(self.shape):
            return np.empty(self.shape, self.dtype)
        return next((shard.array for shard in self.shards if shard.array.shape == self.shape), None)

    def read(self, box: TensorSlice) -> np.ndarray[Any, Any]:
        """A box that lies in one of those that this process holds, in memory of its own.

        Raises:
            MismatchError: This process does not hold it, or it reaches outside the tensor.
        """
        parts = box.resolve(self.shape)
        for shard in self.shards:
            inside = tuple(
                slice(part.start - start, part.stop - start) for part, start in zip(parts, shard.start, strict=True)
            )
            if all(
                part.start >= 0 and part.stop <= length for part, length in zip(inside, shard.array.shape, strict=True)
            ):
                return np.array(shard.array[inside] if inside else shard.array, self.dtype)
        raise MismatchError("this process does not hold this box", expected=self.layout, found=str(box))

    def read_into(self, box: TensorSlice, target: np.ndarray[Any, Any]) -> None:
        """A box, as for `read`, in memory that is there; errors are those of `read`."""
        target[...] = self.read(box)
