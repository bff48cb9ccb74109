"""Who writes what: pure functions, which every process computes for itself."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from milepost.distributed.shares import HeldShare, shares

PROCESSES = 4
MEGABYTE = 1 << 20


@st.composite
def holdings(draw):
    """Boxes, each with those that hold it: what all processes hold."""
    boxes = []
    for number in range(draw(st.integers(0, 12))):
        holders = tuple(sorted(draw(st.sets(st.integers(0, PROCESSES - 1), min_size=1))))
        shape = draw(st.lists(st.integers(1, 5000), max_size=3))
        start = [draw(st.integers(0, 10)) for _ in shape]
        itemsize = draw(st.sampled_from([0, 1, 4, 8]))
        nbytes = math.prod(shape) * max(itemsize, 1)
        box = tuple((first, first + length) for first, length in zip(start, shape, strict=True))
        boxes.append(HeldShare(number, box, itemsize, nbytes, holders))
    return boxes


def written(boxes):
    """The shares of each process, which knows the boxes that it holds."""
    return [shares([each for each in boxes if rank in each.holders], rank) for rank in range(PROCESSES)]


def volume(box):
    return math.prod(stop - start for start, stop in box)


def size(share, boxes):
    return volume(share.box) * max(boxes[share.number].itemsize, 1)


@given(holdings())
def test_every_element_is_written_once(boxes):
    everything = [share for each in written(boxes) for share in each]
    for box in boxes:
        parts = sorted(share.box for share in everything if share.number == box.number)
        assert sum(map(volume, parts)) == volume(box.box)
        assert len(set(parts)) == len(parts)


@given(holdings())
def test_a_part_lies_in_its_box_and_follows_the_one_before(boxes):
    everything = [share for each in written(boxes) for share in each]
    for box in boxes:
        parts = sorted(share.box for share in everything if share.number == box.number)
        cut = [axis for axis in range(len(box.box)) if len({part[axis] for part in parts}) > 1]
        assert len(cut) <= 1
        for axis in range(len(box.box)):
            sides = [part[axis] for part in parts] if axis in cut else [parts[0][axis]]
            reached, end = box.box[axis]
            for start, stop in sides:
                assert start == reached
                reached = stop
            assert reached == end


@given(holdings())
def test_only_who_holds_a_box_writes_it(boxes):
    for rank, own in enumerate(written(boxes)):
        assert all(rank in boxes[share.number].holders for share in own)


def test_large_boxes_of_all_are_divided_evenly():
    everyone = tuple(range(PROCESSES))
    rows = 100_000
    boxes = [HeldShare(number, ((0, rows), (0, 100)), 4, 400 * rows, everyone) for number in range(3)]
    totals = [sum(size(share, boxes) for share in own) for own in written(boxes)]
    assert max(totals) < sum(totals) / PROCESSES * 1.1


def test_replicas_share_their_boxes_with_each_other():
    boxes = [HeldShare(number, ((0, 1000),), 4, 4000, (0, 2)) for number in range(10)]
    assert [len(own) for own in written(boxes)] == [5, 0, 5, 0]


def test_small_boxes_are_not_cut():
    everyone = tuple(range(PROCESSES))
    boxes = [HeldShare(0, ((0, MEGABYTE),), 4, 4 * MEGABYTE, everyone)]
    assert sum(map(len, written(boxes))) == 1


def test_strings_are_not_cut():
    boxes = [HeldShare(0, ((0, 100 * MEGABYTE),), 0, 100 * MEGABYTE, (0, 1))]
    assert sum(map(len, written(boxes))) == 1
