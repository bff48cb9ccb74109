"""How a value is made of saved tensors: its element type and shape, and the boxes of them that a box of it needs.

Nothing is read when a recipe is made. A box of the result is read without the rest of the tensors where their files allow that. Only a reshape may
read more than the box: whole rows around it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from milepost.bundle import BundleReader
from milepost.bundle.format.slices import Box, index_of, intersection, relative
from milepost.bundle.memory import Array, new_array
from milepost.errors import MismatchError, UnsupportedError
from milepost.tensor import TensorSlice, TensorSpec
from milepost.tensor.dtype import STRING


class _Needed(NamedTuple):
    """A box of another recipe, and where it goes."""

    recipe: Recipe
    box: Box
    view: Callable[[Array], Array]
    """The view of the destination that gets it."""


class Recipe:
    """A value that is made of saved tensors.

    Attributes:
        spec: Its element type and shape.
    """

    def __init__(self, spec: TensorSpec) -> None:
        self.spec = spec

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.spec.shape

    @property
    def whole(self) -> Box:
        """The box that is all of it."""
        return tuple((0, length) for length in self.shape)

    def parts(self, box: Box) -> Iterator[_Needed]:
        """The boxes of other recipes that make a box of this one."""
        raise NotImplementedError

    def inputs(self) -> Sequence[Recipe]:
        """The recipes that it is made of."""
        raise NotImplementedError

    def keys(self) -> list[str]:
        """The keys of the saved tensors that it is made of, each once."""
        return list(dict.fromkeys(key for each in self.inputs() for key in each.keys()))  # noqa: SIM118 - a recipe is not a mapping

    def read_into(self, box: Box, destination: Array) -> None:
        """Reads a box into an array of its shape, which may have any strides. Errors are those of `BundleReader.read`, and `MismatchError`."""
        for part in self.parts(box):
            part.recipe.read_into(part.box, part.view(destination))

    def read(self, box: Box) -> Array:
        """A box in a new array. Errors are those of `read_into`."""
        array = new_array(self.spec.dtype, tuple(stop - start for start, stop in box))
        self.read_into(box, array)
        return array

    def check(self, box: Box) -> None:
        """Checks that `read` would succeed, without the memory for the box."""
        for part in self.parts(box):
            part.recipe.check(part.box)


class AsSaved(Recipe):
    """A saved tensor as it is.

    Args:
        reader: The open file.
        key: The key.
    """

    def __init__(self, reader: BundleReader, key: str) -> None:
        super().__init__(reader.spec(key))
        self._reader = reader
        self.key = key

    def inputs(self) -> Sequence[Recipe]:
        return ()

    def keys(self) -> list[str]:
        return [self.key]

    def read_into(self, box: Box, destination: Array) -> None:
        if not destination.size:
            return
        cut = None if box == self.whole else _slice_of(box)
        if destination.flags.c_contiguous:
            self._reader.read_into(self.key, destination, cut)
        else:
            destination[...] = self._reader.read(self.key, cut)

    def check(self, box: Box) -> None:
        if all(start < stop for start, stop in box):
            self._reader.check(self.key, None if box == self.whole else _slice_of(box))


class NoArray(Recipe):
    """A saved value that is no array of numbers, so that no step may take it.

    Args:
        key: Its key.
    """

    def __init__(self, key: str) -> None:
        super().__init__(TensorSpec(STRING, ()))
        self._key = key

    def inputs(self) -> Sequence[Recipe]:
        return ()

    def keys(self) -> list[str]:
        return [self._key]


class Absent(Recipe):
    """A value that the save has left out on purpose, so that only its name and shape are known.

    Args:
        spec: Its element type and shape.
        key: The key that it would have.
    """

    def __init__(self, spec: TensorSpec, key: str) -> None:
        super().__init__(spec)
        self._key = key

    def inputs(self) -> Sequence[Recipe]:
        return ()

    def keys(self) -> list[str]:
        return [self._key]


class Joined(Recipe):
    """Several values one after the other along an axis.

    Args:
        members: The values, of one element type and of equal lengths along all other axes.
        axis: The axis.
    """

    def __init__(self, members: Sequence[Recipe], axis: int) -> None:
        shape = list(members[0].shape)
        shape[axis] = sum(each.shape[axis] for each in members)
        super().__init__(TensorSpec(members[0].spec.dtype, tuple(shape)))
        self._members, self._axis = members, axis

    def inputs(self) -> Sequence[Recipe]:
        return self._members

    def parts(self, box: Box) -> Iterator[_Needed]:
        start, axis = 0, self._axis
        for member in self._members:
            stop = start + member.shape[axis]
            region = (*member.whole[:axis], (start, stop), *member.whole[axis + 1 :])
            common = intersection(region, box)
            if common is not None:
                yield _Needed(member, relative(common, region), _cut(relative(common, box)))
            start = stop


class Stretch(Recipe):
    """Some neighbours along an axis of a value.

    Args:
        member: The value.
        axis: The axis.
        start: The first of them.
        stop: The end of the last.
    """

    def __init__(self, member: Recipe, axis: int, start: int, stop: int) -> None:
        shape = (*member.shape[:axis], stop - start, *member.shape[axis + 1 :])
        super().__init__(TensorSpec(member.spec.dtype, shape))
        self._member, self._axis, self._start = member, axis, start

    def inputs(self) -> Sequence[Recipe]:
        return (self._member,)

    def parts(self, box: Box) -> Iterator[_Needed]:
        (first, last), axis = box[self._axis], self._axis
        shifted = (first + self._start, last + self._start)
        yield _Needed(self._member, (*box[:axis], shifted, *box[axis + 1 :]), _whole)


class Stacked(Recipe):
    """Several values along a new axis.

    Args:
        members: The values, of one element type and shape.
        axis: Where the new axis is in the result.
    """

    def __init__(self, members: Sequence[Recipe], axis: int) -> None:
        shape = members[0].shape
        super().__init__(TensorSpec(members[0].spec.dtype, (*shape[:axis], len(members), *shape[axis:])))
        self._members, self._axis = members, axis

    def inputs(self) -> Sequence[Recipe]:
        return self._members

    def parts(self, box: Box) -> Iterator[_Needed]:
        axis = self._axis
        first, last = box[axis]
        for number in range(first, last):
            index = (*(slice(None) for _ in box[:axis]), number - first, ...)
            yield _Needed(self._members[number], (*box[:axis], *box[axis + 1 :]), _at(index))


class Unstacked(Recipe):
    """One of the values that are stacked along an axis.

    Args:
        member: The stacked value.
        axis: The axis.
        number: Its position.
    """

    def __init__(self, member: Recipe, axis: int, number: int) -> None:
        super().__init__(TensorSpec(member.spec.dtype, (*member.shape[:axis], *member.shape[axis + 1 :])))
        self._member, self._axis, self._number = member, axis, number

    def inputs(self) -> Sequence[Recipe]:
        return (self._member,)

    def parts(self, box: Box) -> Iterator[_Needed]:
        axis, number = self._axis, self._number
        wide = (*box[:axis], (number, number + 1), *box[axis:])
        yield _Needed(self._member, wide, lambda array: np.expand_dims(array, axis))


class Permuted(Recipe):
    """A value with its axes in another order.

    Args:
        member: The value.
        axes: The axes of the value in the order of the result.
    """

    def __init__(self, member: Recipe, axes: Sequence[int]) -> None:
        super().__init__(TensorSpec(member.spec.dtype, tuple(member.shape[axis] for axis in axes)))
        self._member, self._back = member, [axes.index(axis) for axis in range(len(axes))]

    def inputs(self) -> Sequence[Recipe]:
        return (self._member,)

    def parts(self, box: Box) -> Iterator[_Needed]:
        yield _Needed(self._member, tuple(box[axis] for axis in self._back), lambda array: array.transpose(self._back))


class Reshaped(Recipe):
    """A value of which some neighbouring axes are other ones, with the same elements in the same order.

    Args:
        member: The value.
        axis: The first of these axes.
        count: How many there are.
        lengths: The lengths of the axes instead of them.
    """

    def __init__(self, member: Recipe, axis: int, count: int, lengths: Sequence[int]) -> None:
        shape = (*member.shape[:axis], *lengths, *member.shape[axis + count :])
        super().__init__(TensorSpec(member.spec.dtype, shape))
        self._member, self._axis = member, axis
        self._old, self._new = member.shape[axis : axis + count], tuple(lengths)

    def inputs(self) -> Sequence[Recipe]:
        return (self._member,)

    def parts(self, box: Box) -> Iterator[_Needed]:
        yield _Needed(self._member, self._around(box)[0], _whole)

    def read_into(self, box: Box, destination: Array) -> None:
        if not destination.size:
            return
        around, (first, last), skipped = self._around(box)
        before, inside = box[: self._axis], box[self._axis : self._axis + len(self._new)]
        lengths = [stop - start for start, stop in before]
        after = [stop - start for start, stop in box[self._axis + len(self._new) :]]
        flat = self._member.read(around).reshape(*lengths, -1, *after)
        row = math.prod(self._new[1:])
        all_before: Any = (slice(None),) * len(lengths)
        cut = flat[(*all_before, slice(skipped, skipped + (last - first) * row))]
        rows = cut.reshape(*lengths, *((last - first, *self._new[1:]) if self._new else ()), *after)
        within = inside and ((0, last - first), *inside[1:])
        destination[...] = rows[(*all_before, *index_of(within))]

    def _around(self, box: Box) -> tuple[Box, tuple[int, int], int]:
        """The box of the value that has all whole rows which a box needs, these rows, and how many elements are before them there."""
        axis, count = self._axis, len(self._new)
        first, last = box[axis] if count else (0, 1)
        row = math.prod(self._new[1:])
        old_row = math.prod(self._old[1:])
        start, stop = (first * row // old_row, -(-last * row // old_row)) if old_row else (0, 0)
        old = ((start, stop), *((0, length) for length in self._old[1:])) if self._old else ()
        return (*box[:axis], *old, *box[axis + count :]), (first, last), first * row - start * old_row


class Same(Recipe):
    """The single number or text that several saved values have in common, such as the steps that an optimizer has made.

    Args:
        members: The values, of one element type and without dimensions.
        name: What errors call them.
    """

    def __init__(self, members: Sequence[Recipe], name: str) -> None:
        super().__init__(members[0].spec)
        self._members, self._name = members, name

    def inputs(self) -> Sequence[Recipe]:
        return self._members

    def read_into(self, box: Box, destination: Array) -> None:
        values = [member.read(()) for member in self._members]
        for member, value in zip(self._members, values, strict=True):
            if not _are_equal(value, values[0]):
                raise MismatchError(
                    "convert makes one value of these, and they have different numbers for it; nothing was changed",
                    key=self._name,
                    expected=f"{values[0]}, as {self._members[0].keys()[0]} has",
                    found=f"{value} in {member.keys()[0]}",
                    remedy="leave the optimizer out with ignore, or restore a checkpoint in which all have made the same steps",
                )
        destination[...] = values[0]

    def check(self, box: Box) -> None:
        self.read(box)


class Refused(Recipe):
    """A value that cannot be made, which is an error only if it is asked for.

    Args:
        members: What it would be made of.
        error: The error.
    """

    def __init__(self, members: Sequence[Recipe], error: UnsupportedError) -> None:
        super().__init__(members[0].spec)
        self._members, self.error = members, error

    def inputs(self) -> Sequence[Recipe]:
        return self._members

    def read_into(self, box: Box, destination: Array) -> None:
        raise self.error

    def check(self, box: Box) -> None:
        raise self.error


def _slice_of(box: Box) -> TensorSlice:
    return TensorSlice(tuple((start, stop - start) for start, stop in box))


def _are_equal(a: Array, b: Array) -> bool:
    return bool(a.item() == b.item()) if a.dtype.hasobject else a.tobytes() == b.tobytes()


def _whole(array: Array) -> Array:
    return array


def _cut(box: Box) -> Callable[[Array], Array]:
    return lambda array: array[index_of(box)]


def _at(index: tuple[object, ...]) -> Callable[[Array], Array]:
    return lambda array: array[index]  # type: ignore[index]
