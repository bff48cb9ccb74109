"""Checks that the boxes in which a tensor was saved cover it, each element once.

The boxes must have as many elements as the tensor, and no two of them may overlap. To check this, the boxes are divided repeatedly by
planes that cut none of them. The parts that processes hold of a tensor can always be divided in this way. The time for n boxes is in
proportion to n * log(n). A layout of boxes that would take far longer is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Final

from milepost.bundle.format.slices import Box
from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.tensor.spec import format_shape

_FEW: Final = 32
"""The most boxes that are compared with each other if no plane divides them."""
_VISITS: Final = 200
"""How often each box is looked at, on average, before the layout counts as too irregular."""


def check_tiling(boxes: Sequence[Box], shape: Sequence[int]) -> None:
    """Checks that boxes cover a tensor, and that no two of them overlap.

    Args:
        boxes: Start and stop of each box in each dimension. All have elements.
        shape: The shape of the tensor.

    Raises:
        CorruptCheckpointError: They do not cover it, reach outside it, or overlap.
        UnsupportedError: Their layout is too irregular to be checked.

    Example:
        >>> check_tiling([((0, 2), (0, 3)), ((2, 5), (0, 3))], (5, 3))
        >>> check_tiling([((0, 2), (0, 3))], (5, 3))
        Traceback (most recent call last):
        ...
        milepost.errors.CorruptCheckpointError: the saved pieces of a tensor do not cover it
          expected: 15 elements, for the shape [5,3]
          found: pieces of 6 elements
          ...
    """
    for box in boxes:
        if len(box) != len(shape) or any(stop > length for (_, stop), length in zip(box, shape, strict=True)):
            raise CorruptCheckpointError(
                "a saved piece reaches outside its tensor", expected=f"within [{format_shape(shape)}]", found=_text(box)
            )
    size, volume = math.prod(shape), sum(map(_volume, boxes))
    if volume < size:
        raise CorruptCheckpointError(
            "the saved pieces of a tensor do not cover it",
            expected=f"{size} elements, for the shape [{format_shape(shape)}]",
            found=f"pieces of {volume} elements",
            remedy="use another checkpoint: a process did not save its part of the tensor",
        )
    _check_apart(boxes)
    assert volume == size, "boxes that are apart, within a tensor, have no more elements than it"


def _check_apart(boxes: Sequence[Box]) -> None:
    left = _VISITS * len(boxes)
    pending = [list(boxes)]
    while pending:
        group = pending.pop()
        if len(group) < 2:
            continue
        for axis in range(len(group[0])):
            left -= len(group)
            parts = _divided(group, axis)
            if len(parts) > 1:
                pending += parts
                break
        else:
            _compare(group)
        if left < 0:
            raise _irregular(len(boxes))


def _divided(boxes: list[Box], axis: int) -> list[list[Box]]:
    """Divides boxes into groups by planes across an axis that cut no box."""
    boxes.sort(key=lambda box: box[axis])
    groups: list[list[Box]] = []
    end = -1
    for box in boxes:
        start, stop = box[axis]
        if not groups or start >= end:
            groups.append([])
        groups[-1].append(box)
        end = max(end, stop)
    return groups


def _compare(boxes: Sequence[Box]) -> None:
    """Looks for two boxes that overlap, among boxes that no plane divides."""
    for first, second in combinations(boxes[:_FEW], 2):
        if all(start < end and begin < stop for (start, stop), (begin, end) in zip(first, second, strict=True)):
            raise CorruptCheckpointError(
                "two saved pieces of a tensor overlap",
                expected="pieces that have no element in common",
                found=f"{_text(first)} and {_text(second)}",
            )
    if len(boxes) > _FEW:
        raise _irregular(len(boxes))


def _irregular(count: int) -> UnsupportedError:
    return UnsupportedError(
        "the layout of the pieces of a tensor is too irregular to check that they cover it",
        expected="pieces that planes divide, like those that processes save",
        found=f"{count} pieces",
        remedy="load the tensor with the library that saved it, and save it as a whole",
    )


def _volume(box: Box) -> int:
    return math.prod(stop - start for start, stop in box)


def _text(box: Box) -> str:
    return "[" + ", ".join(f"{start}:{stop}" for start, stop in box) + "]"
