"""Boxes cut from a tensor.

The text form is TensorFlow's: ``start,length`` or ``-`` (the whole dimension) for each dimension, joined by ``:``.
Source: TensorFlow 2.21, ``tensorflow/core/framework/tensor_slice.h``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from milepost.errors import MismatchError

WHOLE: Final = (0, -1)
"""The extent of a whole dimension."""


@dataclass(frozen=True, slots=True)
class TensorSlice:
    """A box inside a tensor: for each dimension a start and a length, or the whole dimension.

    The extent ``(0, n)`` and the whole dimension of length ``n`` have the same elements, but are different slices, because
    files distinguish them.

    Attributes:
        extents: One ``(start, length)`` for each dimension; ``(0, -1)`` is the whole dimension.

    Example:
        >>> box = TensorSlice.parse("0,2:-")
        >>> box.resolve((3, 4))
        (slice(0, 2, None), slice(0, 4, None))
    """

    extents: tuple[tuple[int, int], ...]

    @classmethod
    def whole(cls, rank: int) -> Self:
        """The slice that covers a tensor of ``rank`` dimensions."""
        return cls((WHOLE,) * rank)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the text form.

        Raises:
            MismatchError: The text is not a slice.
        """
        if not text:
            return cls(())
        extents = []
        for part in text.split(":"):
            start, comma, length = part.partition(",")
            if part == "-":
                extents.append(WHOLE)
            elif comma and start.isdecimal() and length.isdecimal() and int(length) > 0:
                extents.append((int(start), int(length)))
            else:
                raise MismatchError(
                    "not a tensor slice", found=repr(text), expected="'start,length' or '-', joined by ':'"
                )
        return cls(tuple(extents))

    @property
    def is_whole(self) -> bool:
        """True if no dimension is cut."""
        return all(extent == WHOLE for extent in self.extents)

    def resolve(self, shape: Sequence[int]) -> tuple[slice, ...]:
        """The slice as an index into an array of ``shape``.

        Raises:
            MismatchError: The ranks differ, or the box reaches outside the shape.
        """
        if len(shape) != len(self.extents):
            raise MismatchError(
                "a slice of another rank", expected=f"rank {len(shape)}", found=f"rank {len(self.extents)}"
            )
        index = []
        for (start, length), limit in zip(self.extents, shape, strict=True):
            stop = limit if length < 0 else start + length
            if start < 0 or stop > limit:
                raise MismatchError(
                    "a slice that reaches outside its tensor", expected=f"within {tuple(shape)}", found=self
                )
            index.append(slice(start, stop))
        return tuple(index)

    def shape(self, full_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the box when cut from a tensor of ``full_shape``."""
        return tuple(part.stop - part.start for part in self.resolve(full_shape))

    def __str__(self) -> str:
        return ":".join("-" if extent == WHOLE else f"{extent[0]},{extent[1]}" for extent in self.extents)
