"""Checks of lengths, positions and shapes that a file of another library states.

The checks are made before anything is computed with the numbers. So a file cannot make the reader compute with huge ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, TypeGuard, TypeVar

import numpy as np

MOST_DIMENSIONS: Final = 64
"""The limit of NumPy and of PyTorch on the dimensions of an array."""
_MOST: Final = 1 << 62

SequenceT = TypeVar("SequenceT", list[int], tuple[int, ...])


def is_count(value: Any, below: int = _MOST) -> TypeGuard[int]:
    """Whether a value can be a length or a position."""
    return type(value) is int and 0 <= value < below


def are_counts(
    value: Any, kind: type[SequenceT], *, longest: int = MOST_DIMENSIONS, below: int = _MOST
) -> TypeGuard[SequenceT]:
    """Whether a value is a list or tuple of lengths or positions.

    Args:
        value: The value.
        kind: `list` or `tuple`.
        longest: The largest number of them.
        below: A number that is greater than each.
    """
    if not isinstance(value, kind) or len(value) > longest or not set(map(type, value)) <= {int}:
        return False
    return not value or (min(value) >= 0 and max(value) < below)


def is_shape(
    value: Any, kind: type[SequenceT], *, longest: int = MOST_DIMENSIONS, below: int = _MOST
) -> TypeGuard[SequenceT]:
    """Whether a value can be the shape of an array. Arguments are those of `are_counts`.

    The lengths that are not 0 must have a product below the limit, too.

    Example:
        >>> is_shape([2, 3], list), is_shape((2, 3), list), is_shape([1 << 40, 1 << 40], list)
        (True, False, False)
    """
    # the product takes time in proportion to the square of the length, so the length is checked first
    return are_counts(value, kind, longest=longest, below=below) and math.prod(each for each in value if each) < below


def pairs_of_counts(values: Sequence[Any], *, below: int = _MOST) -> Any:
    """Many values that must be lists of two lengths or positions, as rows of an array; or the index of the first that is not.

    Args:
        values: The values.
        below: A number that is greater than each length or position, at most 2**63.

    Example:
        >>> pairs_of_counts([[0, 8], [8, 12]]).tolist(), pairs_of_counts([[0, 8], [8, True]])
        ([[0, 8], [8, 12]], 1)
    """
    if set(map(type, values)) <= {list} and set(map(len, values)) <= {2}:
        numbers = list(chain.from_iterable(values))
        if set(map(type, numbers)) <= {int} and min(numbers, default=0) >= 0 and max(numbers, default=0) < below:
            return np.array(numbers, np.int64).reshape(-1, 2)
    return next(
        index
        for index, value in enumerate(values)
        if not are_counts(value, list, longest=2, below=below) or len(value) != 2
    )
