"""What steps make of values: recipes, after the element types and shapes were checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from milepost.engine.layouts.recipes import Joined, Permuted, Recipe, Reshaped, Stacked, Stretch, Unstacked
from milepost.engine.layouts.steps import Concatenate, Reshape, Split, Stack, Step, Transpose, Unstack
from milepost.errors import MismatchError


def made(step: Step, members: Sequence[Recipe]) -> list[Recipe]:
    """The values that a step makes, in the order of their names.

    Args:
        step: The step.
        members: The values that it takes, in the order of their names.

    Raises:
        MismatchError: Their element types or shapes do not fit. The error names no key.
    """
    return _MAKE[type(step)](step, members)


def _joined(step: Concatenate, members: Sequence[Recipe]) -> list[Recipe]:
    _same_types(members)
    axis = _axis(members[0], step.axis)
    shapes = [(*each.shape[:axis], *each.shape[axis + 1 :]) for each in members]
    if any(len(each.shape) != len(members[0].shape) for each in members) or len(set(shapes)) > 1:
        raise _mismatch(f"equal lengths along all axes but axis {axis}", _shapes(members))
    sizes = tuple(each.shape[axis] for each in members)
    if sizes != (step.sizes or sizes) or (step.sizes is None and len(set(sizes)) > 1):
        expected = f"lengths {step.sizes}" if step.sizes else "equal lengths"
        raise _mismatch(
            f"{expected} along axis {axis}", _shapes(members), f"pass sizes={sizes}, if that is what the file has"
        )
    return [Joined(members, axis)]


def _divided(step: Split, members: Sequence[Recipe]) -> list[Recipe]:
    (member,) = members
    axis = _axis(member, step.axis)
    length, count = member.shape[axis], len(step.targets)
    if step.sizes is None and length % count:
        raise _mismatch(
            f"a length along axis {axis} that is a multiple of {count}",
            _shapes(members),
            "pass sizes, with the length of each",
        )
    sizes = step.sizes or [length // count] * count
    if sum(sizes) != length:
        raise _mismatch(f"length {sum(sizes)} along axis {axis}, the sum of sizes", _shapes(members))
    stops = [sum(sizes[: number + 1]) for number in range(count)]
    return [Stretch(member, axis, stop - size, stop) for stop, size in zip(stops, sizes, strict=True)]


def _stacked(step: Stack, members: Sequence[Recipe]) -> list[Recipe]:
    _same_types(members)
    if len({each.shape for each in members}) > 1:
        raise _mismatch("values of one shape", _shapes(members))
    return [Stacked(members, _axis(members[0], step.axis, more=1))]


def _unstacked(step: Unstack, members: Sequence[Recipe]) -> list[Recipe]:
    (member,) = members
    axis = _axis(member, step.axis)
    count = member.shape[axis] if isinstance(step.targets, str) else len(step.targets)
    if member.shape[axis] != count or not count:
        raise _mismatch(f"length {count or 'from 1 on'} along axis {axis}", _shapes(members))
    return [Unstacked(member, axis, number) for number in range(count)]


def _transposed(step: Transpose, members: Sequence[Recipe]) -> list[Recipe]:
    (member,) = members
    axes = [*reversed(range(len(member.shape)))] if step.axes is None else step.axes
    if len(axes) != len(member.shape):
        raise _mismatch(f"{len(axes)} axes, as axes has", _shapes(members))
    return [Permuted(member, axes)]


def _reshaped(step: Reshape, members: Sequence[Recipe]) -> list[Recipe]:
    (member,) = members
    axis, count = step.axis, len(step.old)
    present = member.shape[axis : axis + count]
    size, known = math.prod(present), math.prod(each for each in step.new if each != -1)
    fits = len(present) == count and all(
        wanted in (-1, length) for wanted, length in zip(step.old, present, strict=True)
    )
    if not fits or size % known or (-1 not in step.new and size != known):
        expected = f"axes of lengths {_text(step.old)} from axis {axis} on, which become {_text(step.new)}"
        raise _mismatch(expected, _shapes(members))
    return [Reshaped(member, axis, count, [size // known if each == -1 else each for each in step.new])]


_MAKE: Final[dict[type[Step], Callable[[Any, Sequence[Recipe]], list[Recipe]]]] = {
    Concatenate: _joined,
    Split: _divided,
    Stack: _stacked,
    Unstack: _unstacked,
    Transpose: _transposed,
    Reshape: _reshaped,
}


def _axis(member: Recipe, axis: int, *, more: int = 0) -> int:
    """An axis as a number from 0 on."""
    count = len(member.shape) + more
    if not -count <= axis < count:
        raise _mismatch(f"an axis {axis}", _shapes([member]))
    return axis % count


def _same_types(members: Sequence[Recipe]) -> None:
    if len({each.spec.dtype for each in members}) > 1:
        raise _mismatch("values of one element type", ", ".join(str(each.spec) for each in members))


def _text(lengths: Sequence[int]) -> str:
    return ",".join(map(str, lengths))


def _shapes(members: Sequence[Recipe]) -> str:
    return ", ".join(str(each.spec) for each in members)


def _mismatch(expected: str, found: str, remedy: str | None = None) -> MismatchError:
    return MismatchError(
        "a step of convert does not fit the saved values; nothing was changed",
        expected=expected,
        found=found,
        remedy=remedy or "correct the step, or its names, so that it takes no value of another shape",
    )
