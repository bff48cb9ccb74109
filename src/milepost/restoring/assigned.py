"""Values that objects are asked to take, because they cannot be read straight into the memory of the objects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from milepost.bundle import Boxes, BundleReader, Fetch, check_all
from milepost.graph.adapter import Array, StoredTensor, Value
from milepost.graph.remedies import returned
from milepost.graph.trees.places import Place
from milepost.restoring.take import Take
from milepost.restoring.undo import Undo
from milepost.tensor import TensorSlice, TensorSpec

_ASSIGNED: Final = 16 << 20
"""The most bytes of values that may be held from the check, and the most that may be held from the second reading."""
_ARRAY: Final = 256
"""Bytes that an array which is held takes beside its elements."""
_IN_BOXES: Final = 1 << 20
"""Bytes above which a tensor is read box by box, if its object accepts that."""
_BOXES_OF_SEVERAL: Final = 64 << 10
"""The same limit for a tensor of which this process needs only some boxes."""
_REFUSING, _REPLACED, _CHANGED = range(3)
"""Objects that may refuse a value; those that get successors; those that change and are not expected to refuse."""


class Assigned:
    """The values that are assigned, and not read into memory. All objects take theirs, or none does.

    Args:
        reader: The open checkpoint.
        takes: All objects that take values, with the values that are assigned only. There is at least one.
        verify_first: As for `deliver`.

    Attributes:
        may_refuse: Whether one of them may refuse a value, since it runs its own code.
        replaced: The objects that get successors.
        changed: The others, in the order in which they are assigned.
        again: Of the changed objects, those whose values are read again because they are not kept when they are
            verified.
    """

    def __init__(self, reader: BundleReader, takes: Sequence[Take], *, verify_first: bool) -> None:
        self._reader = reader
        self._verify_first = verify_first
        self._in_boxes = {
            value
            for take in takes
            for value, key in take.values
            if value.in_boxes
            and _is_read_in_boxes(value, reader.spec(key))
            and (verify_first or not _is_read_twice(value, reader, key))
        }
        # Objects that may refuse come first, so that no old values of the others are needed.
        ranked: dict[int, dict[int, list[Take]]] = {_REFUSING: {}, _REPLACED: {}, _CHANGED: {}}
        for take in takes:
            ranked[_rank(take)].setdefault(take.adapter.turn, []).append(take)
        refusing, self.replaced, changed = (
            [take for turn in sorted(by_turn) for take in by_turn[turn]] for by_turn in ranked.values()
        )
        self._refusing = len(refusing)
        """How many objects may refuse a value. They come first."""
        self.may_refuse = self._refusing > 0
        self.changed = refusing + changed
        self.again: list[Take] = []
        self._successors: dict[int, Any] = {}
        self._kept = Fetch(reader)
        self._are_read_again: set[int] = set()
        room = _ASSIGNED
        for take in self.changed:
            whole = [key for value, key in take.values if value not in self._in_boxes]
            size = sum([_size(reader, key) for key in whole])
            if size > room:
                self.again.append(take)
                self._are_read_again.add(id(take))
                continue
            room -= size
            for key in whole:
                self._kept.add(key, None)

    def verify(self) -> None:
        """Reads and checks all bytes, and makes the successors of objects that cannot change. No object changes."""
        self._kept.verify()
        wanted = [
            *self._boxes(self.changed, loses_old=self._verify_first),
            *self._boxes(self.replaced, loses_old=False),
        ]
        if self._verify_first:
            again = [key for take in self.again for value, key in take.values if value not in self._in_boxes]
            wanted += [(key, None) for key in again]
        check_all(self._reader, wanted)
        for batch in self._batches(self.replaced):
            arrays = self._read(batch)
            for take in batch:
                self._give(take, arrays)

    def _boxes(self, takes: Sequence[Take], *, loses_old: bool) -> Iterator[tuple[str, TensorSlice | None]]:
        """The boxes that must be checked before they are read.

        Args:
            takes: The objects that take them.
            loses_old: Whether reading a damaged box would lose an old value. If not, a box that is verified when it is read is left out.
        """
        for take in takes if self._in_boxes else ():
            for value, key in take.values:
                if value in self._in_boxes and (loses_old or not Boxes(self._reader, key).verifies):
                    yield from ((key, box) for box in ((None,) if value.boxes is None else value.boxes))

    def deliver(self, undo: Undo) -> dict[int, Any]:
        """Assigns the values of objects that change.

        Args:
            undo: Collects the functions that undo the changes.

        Returns:
            Successors of objects that cannot change, by the identity of the object that each replaces.
        """
        # Backwards, so that a list no longer holds an array once it is assigned.
        kept = self._kept.deliver()[::-1]
        streamed: list[Array] = []
        first_of_batch = {id(batch[0]): batch for batch in self._batches(self.again)}
        for number, take in enumerate(self.changed):
            if id(take) in first_of_batch:
                streamed = self._read(first_of_batch[id(take)])
            if number < self._refusing:
                undo.add(take.adapter.before_assign(take.obj))
            else:
                size = sum(self._reader.spec(key).nbytes for _, key in take.values)
                undo.add_if_small(size, partial(take.adapter.before_assign, take.obj))
            self._give(take, streamed if id(take) in self._are_read_again else kept)
        return self._successors

    def _give(self, take: Take, arrays: list[Array]) -> None:
        """Assigns the last of the given arrays to an object, and records its successor."""
        values_by_name: dict[str, Array | StoredTensor] = {
            value.name: Boxes(self._reader, key) if value in self._in_boxes else arrays.pop()
            for value, key in take.values
        }
        successor = take.assign(values_by_name, self._reader.prefix)
        if successor is None and not isinstance(take.obj, Place):  # a place may hold None
            returned(take.adapter, "assign", successor)
        if successor is not take.obj:
            self._successors[id(take.obj)] = successor

    def _batches(self, takes: Sequence[Take]) -> Iterator[list[Take]]:
        """Divides objects so that the values of each part are held at a time."""
        batch: list[Take] = []
        filled = 0
        reader, in_boxes = self._reader, self._in_boxes
        for take in takes:
            size = 0
            for value, key in take.values:
                if value not in in_boxes:
                    size += _size(reader, key) + _ARRAY
            if batch and filled + size > _ASSIGNED:
                yield batch
                batch, filled = [], 0
            batch.append(take)
            filled += size
        if batch:
            yield batch

    def _read(self, takes: Sequence[Take]) -> list[Array]:
        """The verified values of a batch, last one first."""
        fetch = Fetch(self._reader)
        for take in takes:
            for value, key in take.values:
                if value not in self._in_boxes:
                    fetch.add(key, None)
        fetch.verify()
        arrays = fetch.deliver()
        arrays.reverse()
        return arrays


def _is_read_in_boxes(value: Value, saved: TensorSpec) -> bool:
    """Whether a saved tensor is read box by box, by an object that can take this value of it so."""
    if value.boxes is None:
        return saved.nbytes > _IN_BOXES
    needed = sum(math.prod(box.shape(saved.shape)) for box in value.boxes)
    return saved.nbytes > (_IN_BOXES if needed >= saved.size else _BOXES_OF_SEVERAL)


def _is_read_twice(value: Value, reader: BundleReader, key: str) -> bool:
    """Whether all boxes of a tensor are read, and do not verify it, so that all of it must be verified before."""
    return value.boxes is None and not Boxes(reader, key).verifies


def _size(reader: BundleReader, key: str) -> int:
    """The bytes of a tensor. The entry of one in pieces does not tell them."""
    entry = reader.entry(key)
    return entry.spec.nbytes if entry.slices else entry.size


def _rank(take: Take) -> int:
    if "may_refuse" not in take.adapter.overrides or take.adapter.may_refuse(take.obj):
        return _REFUSING
    return _REPLACED if take.adapter.functional or isinstance(take.obj, Place) else _CHANGED
