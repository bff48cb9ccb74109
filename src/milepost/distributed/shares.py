"""Which process writes which part of a checkpoint. All functions are pure, so all processes get the same result.

One of the processes that hold a box writes it. The boxes that one set of processes holds are divided among these processes evenly by
bytes: the largest box first, each to the process that has least to write so far. All these processes know all these boxes, so each of
them computes the same result. A box that is larger than a quarter of a fair part is cut.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from milepost.bundle.format.slices import Box

_CUT: Final = 8 << 20
"""Bytes below which a box is not cut for the sake of a fair division."""
_PARTS: Final = 4
"""A box is cut if it is larger than what one process should write, divided by this number. So no process writes much more than another."""


class HeldShare(NamedTuple):
    """A box that this process holds, and may have to write.

    Attributes:
        number: The number that the caller gave it.
        box: Where it is in its tensor.
        itemsize: Bytes of an element; 0 for what cannot be cut, such as strings.
        nbytes: Bytes of the box.
        holders: The numbers of the processes that hold it, ascending.
    """

    number: int
    box: Box
    itemsize: int
    nbytes: int
    holders: tuple[int, ...]


class Share(NamedTuple):
    """A box that this process writes.

    Attributes:
        number: The number of the `HeldShare` box that it is, or is cut from.
        box: Where it is in the same tensor.
    """

    number: int
    box: Box


def shares(held: Iterable[HeldShare], rank: int) -> list[Share]:
    """The boxes that one process writes, of those that it holds.

    Args:
        held: The boxes. All processes that hold a box give the boxes of its group in the same order.
        rank: The number of this process.

    Returns:
        The boxes to write, in the order of ``held``.

    Example:
        >>> both = [HeldShare(0, ((0, 8),), 1, 8, (0, 1)), HeldShare(1, ((0, 4),), 1, 4, (0, 1)), HeldShare(2, ((0, 4),), 1, 4, (0, 1))]
        >>> [share.number for share in shares(both, 0)], [share.number for share in shares(both, 1)]
        ([0], [1, 2])
    """
    groups: dict[tuple[int, ...], list[tuple[int, HeldShare]]] = {}
    for order, each in enumerate(held):
        groups.setdefault(each.holders, []).append((order, each))
    own_shares: list[tuple[int, Share]] = []
    for holders, members in groups.items():
        if len(holders) == 1:
            own_shares += [(order, Share(each.number, each.box)) for order, each in members]
            continue
        fair = max(sum(each.nbytes for _, each in members) // (len(holders) * _PARTS), _CUT)
        parts = [(order, number, part) for order, each in members for number, part in enumerate(_cut(each, fair))]
        parts.sort(key=lambda part: (-part[2].nbytes, part[0], part[1]))
        loads = [(0, position) for position in range(len(holders))]
        for order, _, part in parts:
            load, position = loads[0]
            heapq.heapreplace(loads, (load + max(part.nbytes, 1), position))
            if holders[position] == rank:
                own_shares.append((order, Share(part.number, part.box)))
    own_shares.sort(key=lambda pair: (pair[0], pair[1].box))
    return [share for _, share in own_shares]


def _cut(share: HeldShare, most: int) -> Sequence[HeldShare]:
    """Cuts a box along its longest dimension into parts of about equal size, none much larger than ``most`` bytes."""
    if share.nbytes <= most + most // 2 or not share.itemsize or not share.box:
        return [share]
    lengths = [stop - start for start, stop in share.box]
    length = max(lengths)
    axis = lengths.index(length)
    start, _ = share.box[axis]
    count = min(-(-share.nbytes // most), length)
    bounds = [start + length * part // count for part in range(count + 1)]
    return [
        share._replace(
            box=(*share.box[:axis], (begin, end), *share.box[axis + 1 :]), nbytes=share.nbytes // length * (end - begin)
        )
        for begin, end in itertools.pairwise(bounds)
    ]
