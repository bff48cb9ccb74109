"""Tensors saved in pieces: the keys of the pieces, and the pieces that together cover a box.

::

    key    := 0:num  name:str  rank:num  extent^rank
    extent := start:snum  length:snum          whole dimension: start 0, length -1

All keys of slices begin with a zero byte, so they come right after the header. Numbers and strings are those of
`milepost.coding.ordered`. The entry of the whole tensor lists its pieces as messages (Slice in `milepost.bundle.format.messages`).
Source: TensorFlow 2.21, ``tensorflow/core/util/saved_tensor_slice_util.cc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from milepost.bundle.format.messages import Slice
from milepost.coding import ordered
from milepost.errors import CorruptCheckpointError, MismatchError
from milepost.tensor import TensorSlice
from milepost.tensor.slice import WHOLE

KEY_START: Final = b"\x00"
"""The first byte of every key of a slice. No key of a tensor begins with it."""

Box = tuple[tuple[int, int], ...]
"""Start and stop in each dimension."""


class Overlap(NamedTuple):
    """A piece that holds a part of a box.

    Attributes:
        piece: The stored slice.
        source: The part, relative to the piece.
        target: The part, relative to the box.
    """

    piece: TensorSlice
    source: Box
    target: Box


def slice_key(name: bytes, box: TensorSlice) -> bytes:
    """The key under which a piece of a tensor is stored.

    Example:
        >>> slice_key(b"x", TensorSlice.parse("0,2:-")).hex(" ")
        '00 78 00 01 01 02 80 82 80 7f'
    """
    parts = [slice_key_start(name), ordered.encode_num(len(box.extents))]
    for start, length in box.extents:
        parts += (ordered.encode_snum(start), ordered.encode_snum(length))
    return b"".join(parts)


def slice_key_start(name: bytes) -> bytes:
    """The beginning of the keys of all pieces of a tensor, and of no other keys. It sorts as the names do."""
    return ordered.encode_num(0) + ordered.encode_str(name)


def parse_slice_key(key: bytes) -> tuple[bytes, TensorSlice]:
    """The inverse of `slice_key`.

    Raises:
        CorruptCheckpointError: The key is not that of a slice.
    """
    zero, position = ordered.decode_num(key)
    name, position = ordered.decode_str(key, position)
    rank, position = ordered.decode_num(key, position)
    numbers = []
    while position < len(key):
        number, position = ordered.decode_snum(key, position)
        numbers.append(number)
    if zero or len(numbers) != 2 * rank:
        raise CorruptCheckpointError("not the key of a slice", found=key.hex(" "))
    return name, TensorSlice(tuple(zip(numbers[::2], numbers[1::2], strict=True)))


def box_message(box: TensorSlice) -> Any:
    """The ``TensorSliceProto`` of a slice."""
    message = Slice()
    for start, length in box.extents:
        extent = message.extent.add()
        if (start, length) != WHOLE:
            extent.start = start
            extent.length = length
    return message


def parse_box(message: Any, shape: Sequence[int]) -> TensorSlice:
    """The slice in a ``TensorSliceProto``.

    Raises:
        CorruptCheckpointError: The slice cannot be a piece of a tensor of ``shape``.
    """
    box = TensorSlice(tuple((extent.start, extent.length or -1) for extent in message.extent))
    try:
        check_piece(box, shape)
    except MismatchError as error:
        raise CorruptCheckpointError(
            f"an entry with {error.problem}", expected=error.expected, found=error.found
        ) from None
    return box


def check_piece(box: TensorSlice, shape: Sequence[int]) -> None:
    """Checks that a slice can be stored as a piece of a tensor of ``shape``.

    Raises:
        MismatchError: The slice reaches outside the shape, or has an extent of length 0, which files cannot hold.
    """
    if len(box.extents) == len(shape) and all(
        0 <= start < start + length <= limit or (start, length) == WHOLE
        for (start, length), limit in zip(box.extents, shape, strict=True)
    ):
        return
    box.resolve(shape)
    if any(length < 1 and (start, length) != WHOLE for start, length in box.extents):
        raise MismatchError(
            "a slice with an extent that has no positive length", expected="lengths from 1 on, or '-'", found=box
        )


def covers(box: TensorSlice, shape: tuple[int, ...]) -> bool:
    """Whether a slice covers a whole tensor of ``shape``, in either notation."""
    return box.shape(shape) == shape


def ranges(box: TensorSlice, shape: Sequence[int]) -> Box:
    """Start and stop of a slice in each dimension of a tensor of ``shape``.

    Raises:
        MismatchError: The slice reaches outside the shape.
    """
    bounds = tuple((part.start, part.stop) for part in box.resolve(shape))
    if any(start > stop for start, stop in bounds):
        raise MismatchError("a slice that begins outside its tensor", expected=f"within {tuple(shape)}", found=box)
    return bounds


def index_of(box: Box) -> tuple[Any, ...]:
    """The index that selects a box from an array. The result is a view, even without dimensions."""
    return (*(slice(start, stop) for start, stop in box), ...)


def overlaps(stored: Sequence[TensorSlice], box: TensorSlice, shape: Sequence[int]) -> list[Overlap]:
    """The pieces that together cover a box. They may overlap each other. Pieces that add nothing are left out.

    Args:
        stored: All pieces of the tensor.
        box: The box.
        shape: The shape of the whole tensor.

    Raises:
        MismatchError: The box reaches outside the shape.
        CorruptCheckpointError: The pieces do not cover the box.
    """
    wanted = ranges(box, shape)
    missing = [] if _is_empty(wanted) else [wanted]
    overlapping = []
    common: Box | None
    regions = ((_place(piece, shape), piece) for piece in stored)
    near = [(region, piece) for region, piece in regions if _meet(region, wanted)]
    # sorted by position, the pieces of a grid leave few boxes uncovered at any time
    for region, piece in sorted(near, key=lambda pair: pair[0]):
        if not missing:
            break
        common = intersection(region, wanted)
        if common is None:
            continue
        left = [rest for part in missing for rest in _without(part, common)]
        if left != missing:
            missing = left
            overlapping.append(Overlap(piece, relative(common, region), relative(common, wanted)))
    if missing:
        raise CorruptCheckpointError(
            "the saved slices leave out part of the tensor",
            expected=f"all of {box}",
            found="nothing for " + ":".join(f"{start},{stop - start}" for start, stop in missing[0]),
        )
    return overlapping


def intersection(a: Box, b: Box) -> Box | None:
    """The box of the elements that two boxes have in common. None if there are none.

    Example:
        >>> intersection(((0, 2), (0, 4)), ((1, 3), (2, 6)))
        ((1, 2), (2, 4))
    """
    common = tuple((max(p, r), min(q, s)) for (p, q), (r, s) in zip(a, b, strict=True))
    return None if _is_empty(common) else common


def relative(box: Box, other: Box) -> Box:
    """A box in a tensor, as a box in the part of the tensor that another box holds.

    Example:
        >>> relative(((3, 5),), ((2, 6),))
        ((1, 3),)
    """
    return tuple((start - first, stop - first) for (start, stop), (first, _) in zip(box, other, strict=True))


def _place(piece: TensorSlice, shape: Sequence[int]) -> Box:
    """As `ranges`, for a piece that was checked."""
    return tuple(
        [
            (start, start + length) if length >= 0 else (0, limit)
            for (start, length), limit in zip(piece.extents, shape, strict=True)
        ]
    )


def _meet(a: Box, b: Box) -> bool:
    """Whether two boxes may have elements in common: few of the pieces of a tensor meet a box."""
    return all([p < s and r < q for (p, q), (r, s) in zip(a, b, strict=True)])  # noqa: C419 - faster for few dimensions


def _is_empty(box: Box) -> bool:
    return any(start >= stop for start, stop in box)


def _without(box: Box, hole: Box) -> list[Box]:
    """The rest of a box, as boxes, without the part in another box."""
    common = intersection(box, hole)
    if common is None:
        return [box]
    left: list[Box] = []
    for axis, ((start, stop), (first, last)) in enumerate(zip(box, common, strict=True)):
        sides = [side for side in ((start, first), (last, stop)) if side[0] < side[1]]
        left += [(*common[:axis], side, *box[axis + 1 :]) for side in sides]
    return left
