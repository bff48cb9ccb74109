"""Converts the elements of a tensor to another type, and loses none in silence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from milepost.bundle.memory import Array
from milepost.errors import MismatchError
from milepost.tools.values.blocks import as_numbers


class Converter:
    """Converts chunks of a tensor.

    Args:
        wanted: The type.
        key: The tensor, for errors.
        file: Its file.

    Attributes:
        rounded: How many elements have another value in the new type, so far.

    Example:
        >>> converter = Converter(np.dtype("int8"), "v", "ckpt")
        >>> [chunk.tolist() for chunk in converter.converted([np.array([1.0, 2.5])])], converter.rounded
        ([[1, 2]], 1)
    """

    def __init__(self, wanted: np.dtype[Any], key: str, file: str) -> None:
        self._wanted = wanted
        self._key, self._file = key, file
        self.rounded = 0

    def converted(self, chunks: Iterable[Array]) -> Iterator[Array]:
        """The elements in the new type.

        Raises:
            MismatchError: The type cannot hold a number: it is too large, or not finite, or complex.
        """
        for chunk in chunks:
            if chunk.dtype == self._wanted or self._wanted.kind == "b":
                yield chunk
                continue
            with np.errstate(all="ignore"):
                is_complex = chunk.dtype.kind == "c" and self._wanted.kind != "c"
                new = (chunk.real if is_complex else chunk).astype(self._wanted)
                is_lost, is_rounded = _compared(chunk, new)
            if is_lost.any():
                raise MismatchError(
                    f"the type {self._wanted.name} cannot hold a number of this tensor",
                    key=self._key,
                    file=self._file,
                    found=str(chunk[is_lost][0]),
                    remedy="convert to a type of a larger range, such as float64",
                )
            self.rounded += int(np.count_nonzero(is_rounded))
            yield new


def _compared(old: Array, new: Array) -> tuple[Any, Any]:
    """Which elements the new type cannot hold, and which have another value in it."""
    if old.dtype.kind == "c" and new.dtype.kind != "c":
        return old.imag != 0, _compared(old.real, new)[1]
    before, after = as_numbers(old), as_numbers(new)
    is_other = (before != after) & ((before == before) | (after == after))
    if before.dtype.kind in "iu" and new.dtype.kind == "f":
        return np.isinf(after), new.astype(before.dtype) != before  # wider integers would be rounded to be compared
    if new.dtype.kind not in "iu":
        return np.isfinite(before) & ~np.isfinite(after), is_other
    if before.dtype.kind in "iu":
        return is_other, is_other
    return ~(np.abs(before.astype(np.float64) - after) < 1), is_other
