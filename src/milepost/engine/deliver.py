"""Assigns saved values to the live objects that match them: all of them, or none.

The order is:

1. Check that every value fits its object.
2. Read and verify all values. Objects without an old value get their new one in this step: the successors of values
   that cannot change, which no object holds yet, and slot variables that the restore has made. The others are kept if
   they are small.
3. Assign to objects that run their own code, such as `PythonState`. They get their old values back if one of them raises an error.
4. Assign to objects that take an array and are not expected to fail.
5. Read the other values straight into the memory of their objects.

Small old values are kept in steps 4 and 5 too, so that a late failure can be undone (`milepost.engine.undo`).

So large values that replace old ones are read twice, because the old ones must stay if a checksum is wrong. With
``CheckpointOptions(verify_first=False)`` they are read once: step 2 leaves them out, and steps 4 and 5 verify them.

The arrays that are held at a time, besides the new values, take at most 64 MiB, or what one object needs. For an array that is
spread over devices, each device gets its own box, which is read when the array of that device is made.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final, NamedTuple

from milepost.bundle import Boxes, BundleReader, CastingReader, Fetch, check_all, is_castable
from milepost.collector import paused_for
from milepost.engine.growth import Growth
from milepost.engine.progress import Reporter, saved_sizes
from milepost.engine.report import Entry, Outcome, Report
from milepost.engine.translation import AS_SAVED, Translation
from milepost.engine.undo import Undo, refused
from milepost.errors import CorruptCheckpointError, KeyNotFoundError, MilepostError, MismatchError
from milepost.graph.adapter import Adapter, Array, StoredTensor, Value, adapter_of
from milepost.graph.keys import ATTRIBUTES
from milepost.graph.remedies import returned, without_assign
from milepost.graph.traversal import live_children
from milepost.graph.trees.places import Place, put, rebuild
from milepost.graph.variable import shape_fits
from milepost.tensor import TensorSlice, TensorSpec
from milepost.tensor.spec import format_shape

_STAGING: Final = 24 << 20
"""Bytes of small tensors that a restore may hold between the check and the delivery, for values with a destination."""
_ASSIGNED: Final = 16 << 20
"""The most bytes of values to assign that it may hold from the check, and the most that it may hold from the second
reading."""
_IN_BOXES: Final = 1 << 20
"""Bytes above which a tensor is read box by box, if its object accepts that."""
_BOXES_OF_SEVERAL: Final = 64 << 10
"""The same limit for a tensor of which this process needs only some boxes."""
_MOST_LISTED: Final = 10
_SHAPE_TOO: Final = "the shape differs too"
_REFUSING, _REPLACED, _CHANGED = range(3)
"""Objects that may refuse a value; those that get successors; those that change and are not expected to refuse."""


class Take(NamedTuple):
    """A live object, the saved node whose values it takes, and the key of each."""

    node: int
    obj: Any
    adapter: Adapter
    values: Sequence[tuple[Value, str]]


def cast(reader: CastingReader, takes: Sequence[Take], translation: Translation) -> None:
    """Makes the reader convert numbers to the element types of the live objects, if the translation allows it."""
    for take in takes:
        for value, key in take.values:
            if key in reader:
                saved = reader.saved(key).dtype
                fits = saved is value.dtype or saved in value.accepts
                if not fits and is_castable(saved, value.dtype) and translation.casts(key):
                    reader.cast(key, value.dtype)


def check(reader: BundleReader, takes: Sequence[Take], translation: Translation = AS_SAVED) -> int:
    """Checks that every value fits its object.

    Args:
        reader: The open checkpoint.
        takes: The values.
        translation: The changes that the restore makes, for the remedy.

    Returns:
        The bytes of all values as they are in the files.

    Raises:
        MismatchError: Some values do not fit. The message names them, and ``report`` has all of them.
        CorruptCheckpointError: The checkpoint lacks a value that its object graph names.
    """
    problems = []
    size = 0
    for take in takes:
        for value, key in take.values:
            try:
                saved = reader.entry(key)
            except KeyNotFoundError as error:
                raise CorruptCheckpointError(
                    "the object graph names a tensor that the checkpoint does not have",
                    key=key,
                    file=reader.prefix,
                    remedy="restore another checkpoint",
                ) from error
            size += saved.spec.nbytes if saved.slices else saved.size
            fits = saved.shape == value.shape or shape_fits(saved.shape, value.shape)
            if saved.dtype is not value.dtype and saved.dtype not in value.accepts:
                note = "" if fits else _SHAPE_TOO
                problems.append(Entry(Outcome.WRONG_DTYPE, key, str(saved.spec), live_spec(value), note))
            elif not fits:
                problems.append(Entry(Outcome.WRONG_SHAPE, key, str(saved.spec), live_spec(value)))
    if problems:
        raise _mismatch(reader.prefix, problems, translation)
    return size


def deliver(
    reader: BundleReader,
    takes: Sequence[Take],
    holders: Sequence[Any],
    undo: Undo,
    growth: Growth | None = None,
    verified: Callable[[], object] = lambda: None,
    before_own_code: Callable[[], object] = lambda: None,
    progress: Reporter | None = None,
    fresh: Collection[int] = (),
    *,
    verify_first: bool = True,
) -> dict[int, Any]:
    """Verifies all values and assigns them.

    Args:
        reader: The open checkpoint.
        takes: Values that have passed `check`.
        holders: The objects in which successors must replace objects that cannot change.
        undo: Collects the functions that undo the changes. The caller runs it if this call or a later step raises an error.
        growth: The plain values that containers gain.
        verified: Called when everything that can be checked beforehand is checked, and nothing has changed yet.
        before_own_code: Called before objects that run their own code take their values, if there are any.
        progress: Counts the bytes of the values; None if there is no progress function.
        fresh: Identities of objects that were made for this restore. If it fails, they are not needed.
        verify_first: Whether all values are verified before an object changes.

    Returns:
        Successors of objects that cannot change, by the identity of the object that each replaces.

    Raises:
        CorruptCheckpointError: Some bytes are damaged.
        StorageError: The files cannot be read.
        RefusedError: An object or its framework raised an error for a value.
        UnsupportedError: An adapter has no way to give an object its value.
    """
    filled: list[Take] = []
    made: list[Take] = []
    others: list[Take] = []
    in_place = Fetch(reader, staging=_STAGING, once=not verify_first)
    into_made = Fetch(reader, once=True)
    with paused_for(len(takes)):
        for take in takes:
            takers, fetch = (made, into_made) if id(take.obj) in fresh else (filled, in_place)
            read = 0
            for value, key in take.values:
                if value.destination is not None:
                    fetch.add(key, value.destination)
                    read += 1
            if read:
                takers.append(take)
            if read < len(take.values):
                if "assign" not in take.adapter.overrides:
                    raise _lost(reader, take)
                others.append(take)
    assigned = _Assigned(reader, others, verify_first=verify_first) if others else None
    stage = nullcontext if progress is None else _begin(progress, reader, takes, assigned, filled, verify_first)
    with stage():
        if assigned is not None:
            if assigned.may_refuse:
                before_own_code()
            assigned.verify()
        into_made.verify()
        if verify_first:
            in_place.verify()
    verified()
    if growth is not None and (growth.changes or growth.cuts):
        growth.apply(undo)
    with stage():
        successors = assigned.deliver(undo) if assigned is not None else {}
        highest = {obj if obj.parent is None else obj.parent for obj in holders if isinstance(obj, Place)}
        former = {root: root.value for root in {place.root for place in highest}}
        trees = rebuild(holders, successors) if former else []
        if filled:
            _keep_destinations(filled, undo)
            if not verify_first:
                in_place.verify()
            in_place.deliver()
    for take in itertools.chain(filled, made):
        _assign(reader, take, _destinations(take))
    if trees:
        undo.add(partial(_put_back, trees, former))
        put(trees)
    if successors:
        _substitute(holders, successors, undo)
    return successors


def _destinations(take: Take) -> dict[str, Array]:
    """The memory of an object into which its values are read, by their names."""
    return {value.name: value.destination for value, _ in take.values if value.destination is not None}


def _keep_destinations(filled: Sequence[Take], undo: Undo) -> None:
    """Keeps the old values of objects whose memory is read into, up to a limit."""
    kept: list[tuple[Array, Array]] = []

    def put_back() -> None:
        for array, old in kept:
            array[...] = old
        for take in filled:
            take.adapter.assign(take.obj, _destinations(take))

    undo.add(put_back)
    destinations = [value.destination for take in filled for value, _ in take.values if value.destination is not None]
    if not undo.has_room(sum([array.nbytes for array in destinations])):
        destinations = [array for array in destinations if undo.has_room(array.nbytes)]
    kept += [(array, array.copy()) for array in destinations]


def _put_back(trees: Sequence[Place], former: Mapping[Place, Any]) -> None:
    for place in trees:
        place.value = former[place]
        try:
            put([place])
        except Exception:
            # An object that refuses its old tree may have refused the new one too.
            holder = place.holder() if place.holder is not None else None
            if _children(holder).get(place.key) is not place or place.value is not former[place]:
                raise


def _replace_back(adapter: Adapter, holder: Any, former: Mapping[str, Any]) -> None:
    try:
        adapter.replace(holder, former)
    except Exception:
        # An object that refuses its old children may have refused the successors too.
        present = _children(holder)
        if any(present.get(name) is not child for name, child in former.items()):
            raise


def _children(holder: Any) -> dict[str, Any]:
    adapter = adapter_of(holder)
    return {} if adapter is None else dict(live_children(adapter, holder))


def _assign(reader: BundleReader, take: Take, given: dict[str, Any]) -> Any:
    try:
        for value, _ in take.values:
            if value.converts and value.name in given:
                given[value.name] = value.taken(given[value.name])
        return take.adapter.assign(take.obj, given)
    except MilepostError as error:
        error.with_context(key=take.values[0][1], file=reader.prefix)
        raise
    except Exception as error:
        raise refused(error).with_context(key=take.values[0][1], file=reader.prefix) from error


def _lost(reader: BundleReader, take: Take) -> MilepostError:
    value, key = next(pair for pair in take.values if pair[0].destination is None)
    return without_assign(take.adapter, value.name).with_context(key=key, file=reader.prefix)


def live_spec(value: Value) -> str:
    """Element type and shape of a live value, as reports show them."""
    return f"{value.dtype}[{format_shape(value.shape)}]"


def _mismatch(prefix: str, problems: Sequence[Entry], translation: Translation) -> MismatchError:
    first = problems[0]
    more = "".join(f"\n    also {entry.outcome.value}: {entry}" for entry in problems[1:_MOST_LISTED])
    if len(problems) > _MOST_LISTED:
        more += f"\n    and {len(problems) - _MOST_LISTED} more"
    error = MismatchError(
        f"{first.outcome.value}: a saved value does not fit the live object; nothing was changed",
        key=first.key,
        file=prefix,
        expected=f"{first.live}, as the live object has it",
        found=f"{first.saved} in the checkpoint{more}",
        remedy=_remedy(problems, translation),
    )
    error.report = Report(prefix, tuple(problems))
    return error


def _remedy(problems: Sequence[Entry], translation: Translation) -> str:
    """The arguments with which a restore leaves these values alone or converts them."""
    names = [translation.live_name(entry.key.partition(ATTRIBUTES)[0]) or entry.key for entry in problems]
    ignored = list(dict.fromkeys(names))
    if len(ignored) > 1:
        ignored = list(dict.fromkeys(re.sub(r"[./][^./]*$", "", name) for name in ignored))
    ignore = repr(ignored[0]) if len(ignored) == 1 else f"[{', '.join(map(repr, ignored[:_MOST_LISTED]))}]"
    if len(ignored) > _MOST_LISTED:
        ignore = "[...] with their names"
    keep = f"to keep the live values, pass ignore={ignore} to the restore"
    if any(entry.note == _SHAPE_TOO for entry in problems):
        return f"give the live object the saved element type and shape; {keep}"
    if any(entry.outcome is Outcome.WRONG_DTYPE for entry in problems):
        if any(translation.casts(entry.key) for entry in problems):
            return f"give the live object the saved element type, because cast does not convert numbers of this type to the other; {keep}"
        return f"give the live object the saved element type; to convert numbers, pass cast=True to the restore; {keep}"
    return f"give the live object the saved shape; {keep}"


class _Assigned:
    """The values that are assigned, and not read into memory. All objects take theirs, or none does.

    Args:
        reader: The open checkpoint.
        takes: All objects that take values. There is at least one.
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
        wanted = [
            take
            if all(value.destination is None for value, _ in take.values)
            else take._replace(values=[pair for pair in take.values if pair[0].destination is None])
            for take in takes
        ]
        self._in_boxes = {
            value
            for take in wanted
            for value, key in take.values
            if value.in_boxes and _is_read_in_boxes(value, reader.spec(key))
        }
        # Objects that may refuse come first, so that no old values of the others are needed.
        ranked = [(_rank(take), take) for take in wanted]
        ranked.sort(key=lambda pair: (pair[0], pair[1].adapter.turn))
        self._refusing = sum(rank == _REFUSING for rank, _ in ranked)
        """How many objects may refuse a value. They come first."""
        self.may_refuse = self._refusing > 0
        self.replaced = [take for rank, take in ranked if rank == _REPLACED]
        self.changed = [take for rank, take in ranked if rank != _REPLACED]
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
        for take in takes:
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
        given: dict[str, Array | StoredTensor] = {
            value.name: Boxes(self._reader, key) if value in self._in_boxes else arrays.pop()
            for value, key in take.values
        }
        successor = _assign(self._reader, take, given)
        if successor is None and not isinstance(take.obj, Place):  # a place may hold None
            returned(take.adapter, "assign", successor)
        if successor is not take.obj:
            self._successors[id(take.obj)] = successor

    def _batches(self, takes: Sequence[Take]) -> Iterator[list[Take]]:
        """Divides objects so that the values of each part are held at a time."""
        batch: list[Take] = []
        filled = 0
        for take in takes:
            size = sum([_size(self._reader, key) for value, key in take.values if value not in self._in_boxes])
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
        return fetch.deliver()[::-1]


def _begin(
    progress: Reporter,
    reader: BundleReader,
    takes: Sequence[Take],
    assigned: _Assigned | None,
    filled: Sequence[Take],
    verify_first: bool,
) -> Callable[[], AbstractContextManager[None]]:
    """Tells of the bytes that are read before anything changes, and of those that are read afterwards. Returns what begins either."""
    later = [*filled, *(assigned.again if assigned is not None else ())]
    first = takes
    if not verify_first:
        late = {id(take.obj) for take in later}
        first = [take for take in takes if id(take.obj) not in late]
    progress.begin(_bytes_taken(reader, takes), [_bytes_taken(reader, first), _bytes_taken(reader, later)])
    return progress.stage


def _bytes_taken(reader: BundleReader, takes: Sequence[Take]) -> Iterator[int]:
    """The bytes of each value, or of those parts of it that the objects of this process hold."""
    for take in takes:
        for value, key in take.values:
            if value.boxes is None:
                yield from saved_sizes(reader, [key])
            else:
                saved = reader.spec(key)
                yield sum(math.prod(box.shape(saved.shape)) for box in value.boxes) * saved.dtype.itemsize


def _is_read_in_boxes(value: Value, saved: TensorSpec) -> bool:
    """Whether a saved tensor is read box by box, by an object that can take this value of it so."""
    if value.boxes is None:
        return saved.nbytes > _IN_BOXES
    needed = sum(math.prod(box.shape(saved.shape)) for box in value.boxes)
    return saved.nbytes > (_IN_BOXES if needed >= saved.size else _BOXES_OF_SEVERAL)


def _size(reader: BundleReader, key: str) -> int:
    """The bytes of a tensor. The entry of one in pieces does not tell them."""
    entry = reader.entry(key)
    return entry.spec.nbytes if entry.slices else entry.size


def _rank(take: Take) -> int:
    if "may_refuse" not in take.adapter.overrides or take.adapter.may_refuse(take.obj):
        return _REFUSING
    return _REPLACED if take.adapter.functional or isinstance(take.obj, Place) else _CHANGED


def _substitute(holders: Sequence[Any], successors: dict[int, Any], undo: Undo) -> None:
    """Replaces objects by their successors in all holders. A tuple cannot change, so it gets a successor itself."""
    settled = False
    while not settled:
        settled = True
        for obj in reversed(holders):
            holder = successors.get(id(obj), obj)
            adapter = adapter_of(holder)
            if adapter is None or adapter.leaf:
                continue
            former = {name: child for name, child in live_children(adapter, holder) if id(child) in successors}
            changes = {name: successors[id(child)] for name, child in former.items()}
            if changes:
                undo.add(partial(_replace_back, adapter, holder, former))
                successor = returned(adapter, "replace", adapter.replace(holder, changes))
                if successor is not holder:
                    successors[id(obj)] = successors[id(holder)] = successor
                    settled = False
