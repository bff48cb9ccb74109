"""Saves floating-point numbers as another element type, as `CheckpointOptions.cast` says.

Numbers are converted when they are written, some megabytes at a time. A finite number that the new type would make infinite fails the save.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.bundle.casting import floating, is_real, loss
from milepost.engine.arguments import wrong
from milepost.engine.translation import at_or_below, means, pattern_of
from milepost.errors import MismatchError
from milepost.graph.adapter import Array
from milepost.tensor import DType, PiecewiseArray, Shard, ShardedArray
from milepost.tensor.pieces import Piece, Slices

_ARGUMENT: Final = "cast"


class _Rule(NamedTuple):
    """A name, and the element type of the values that it names."""

    pattern: re.Pattern[str]
    dtype: DType


class CastOnSave:
    """Which values are saved as which element type.

    Args:
        cast: An element type for all floating-point numbers, or names with an element type for each. A name stands for everything below it,
            too, and ``*`` for any text. Of several names that fit, the longest is used.

    Raises:
        UnsupportedError: It is neither, or names another element type.
    """

    def __init__(self, cast: Any) -> None:
        types_by_name = cast if isinstance(cast, Mapping) else {"*": cast}
        for name in types_by_name:
            if not isinstance(name, str) or not name.strip("./"):
                raise wrong(_ARGUMENT, cast, "an element type, or a dict of element types by names")
        self._rules = [
            _Rule(at_or_below(pattern_of(name)), floating(types_by_name[name], _ARGUMENT))
            for name in sorted(types_by_name, key=len)[::-1]
        ]

    def dtype_of(self, path: str, dtype: DType) -> DType:
        """The element type as which a value is saved.

        Args:
            path: The path of its object.
            dtype: Its own element type.
        """
        if not is_real(dtype):
            return dtype
        return next((rule.dtype for rule in self._rules if means(rule.pattern, path)), dtype)


def as_type(
    array: Array | PiecewiseArray | ShardedArray, saved: DType, dtype: DType, key: str
) -> PiecewiseArray | ShardedArray:
    """An array whose elements are converted when they are read.

    Args:
        array: The array.
        saved: Its element type.
        dtype: The element type to convert to.
        key: The key of the value, for errors.
    """
    if isinstance(array, ShardedArray):
        shards = [Shard(each.start, _converted(each.array, saved, dtype, key), each.holders) for each in array.shards]
        return ShardedArray(dtype.numpy, array.shape, shards, array.layout)
    return _converted(array, saved, dtype, key)


def _converted(array: Array | PiecewiseArray, saved: DType, dtype: DType, key: str) -> PiecewiseArray:
    shape = array.shape
    is_constant = isinstance(array, PiecewiseArray) and array.constant
    piece = Piece((0,) * len(shape), shape, _CastElements(array, saved, dtype, key))
    return PiecewiseArray(dtype.numpy, shape, [piece], constant=is_constant)


class _CastElements:
    """The converted elements of an array; see `milepost.tensor.pieces.PieceSource`."""

    def __init__(self, array: Array | PiecewiseArray, saved: DType, dtype: DType, key: str) -> None:
        self._array = array
        self._saved = saved
        self._dtype = dtype
        self._key = key

    def __getitem__(self, box: Slices, /) -> Array:
        elements = np.asarray(self._array[box])
        with np.errstate(all="ignore"):
            converted = elements.astype(self._dtype.numpy)
        lost, _ = loss(elements, converted, self._saved, self._dtype)
        if lost.any():
            raise MismatchError(
                "a number cannot be saved as this element type; nothing was saved",
                key=self._key,
                expected=f"numbers that {self._dtype} can hold",
                found=f"{elements[lost].reshape(-1)[0]!s} of {self._saved}",
                remedy="leave this value out of cast, by naming those to convert; or use a type that holds it, such as bfloat16",
            )
        return converted
