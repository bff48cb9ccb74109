"""Element type and shape of a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from milepost.tensor.dtype import DType


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Element type and shape of a tensor.

    Attributes:
        dtype: The element type.
        shape: One length for each dimension; ``()`` for a scalar.

    Example:
        >>> TensorSpec(DType.of("float32"), (2, 3))
        float32[2,3]
    """

    dtype: DType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of the stored elements in bytes; 0 for strings and variants, whose size does not follow from the shape."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.dtype}[{format_shape(self.shape)}]"


def format_shape(shape: Sequence[int | None]) -> str:
    """A shape as text such as ``2,3``, with ``?`` for an unknown length. An unknown shape is ``...``.

    Example:
        >>> format_shape((2, None))
        '2,?'
    """
    if tuple(shape) == (-1,):
        return "..."
    return ",".join("?" if length is None else str(length) for length in shape)
