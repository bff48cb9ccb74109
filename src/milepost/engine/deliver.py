"""Giving saved values to the live objects that take them: all of them, or none.

Everything that can be known beforehand is checked first: that every value fits its object, and that all bytes have
their checksums. Objects that run code of their own when they take a value (`PythonState`, for example) come next, and
get their old values back if one of them refuses. Then come values of which a new one is made, and nothing changes by
that; then objects that take an array and are not expected to fail; and last, plain values are read straight into memory.
Of these two kinds small old values are kept, too, against what nobody expects (`milepost.engine.undo`).

No more arrays are held at a time than fit into 64 MiB, or one object needs: what is small is kept from the
first reading, the rest is read again when its turn comes. Of what is spread over devices each gets its own box, which is
read when that device's array is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from milepost.bundle import Boxes, BundleReader, Fetch, check_all
from milepost.engine.collector import collection_paused
from milepost.engine.growth import Growth
from milepost.engine.report import Entry, Outcome, Report
from milepost.engine.undo import Undo, refused
from milepost.errors import CorruptCheckpointError, KeyNotFoundError, MilepostError, MismatchError
from milepost.graph.adapter import Adapter, Array, StoredTensor, Value, adapter_of
from milepost.graph.remedies import returned, without_assign
from milepost.graph.traversal import live_children
from milepost.graph.trees.places import Place, put, rebuild
from milepost.graph.variable import shape_fits
from milepost.tensor.spec import format_shape

_STAGING: Final = 24 << 20
"""Bytes of small tensors that go into memory that a restore may hold between checking and delivering them."""
_ASSIGNED: Final = 16 << 20
"""Bytes that it may hold of those that are assigned: as many from checking them, and as many that were read again."""
_IN_BOXES: Final = 1 << 20
"""Bytes of a tensor above which it is read box by box, if its object takes it so."""
_MOST_LISTED: Final = 10
_REFUSING, _SUCCEEDED, _CHANGED = range(3)
"""Objects that may refuse a value; those that get successors; those that change, and are not expected to refuse."""
_KEPT: Final = -1
"""In place of a batch's number: kept from the first reading."""


class Take(NamedTuple):
    """A live object, the saved node whose values it takes, and the key of each."""

    node: int
    obj: Any
    adapter: Adapter
    values: Sequence[tuple[Value, str]]


@collection_paused()
def check(reader: BundleReader, takes: Sequence[Take]) -> None:
    """Makes sure that every value fits the object that takes it.

    Raises:
        MismatchError: Some do not; it names each, and its ``report`` has them all.
        CorruptCheckpointError: A value that the object graph names is not there.
    """
    problems = []
    for take in takes:
        for value, key in take.values:
            try:
                saved = reader.entry(key)
            except KeyNotFoundError as error:
                raise CorruptCheckpointError(
                    "the object graph names a tensor that the checkpoint does not hold",
                    key=key,
                    file=reader.prefix,
                    remedy="restore another checkpoint",
                ) from error
            if saved.dtype is not value.dtype and saved.dtype not in value.accepts:
                problems.append(Entry(Outcome.WRONG_DTYPE, key, str(saved.spec), live_spec(value)))
            elif saved.shape != value.shape and not shape_fits(saved.shape, value.shape):
                problems.append(Entry(Outcome.WRONG_SHAPE, key, str(saved.spec), live_spec(value)))
    if problems:
        raise _mismatch(reader.prefix, problems)


def deliver(
    reader: BundleReader, takes: Sequence[Take], holders: Sequence[Any], undo: Undo, growth: Growth | None = None
) -> dict[int, Any]:
    """Verifies and gives all values.

    Args:
        reader: The open checkpoint.
        takes: What `check` has found to fit.
        holders: The objects that may hold objects that cannot change, and must be given their successors.
        undo: Gets what takes back each change; the caller runs it if this raises, or anything that follows.
        growth: The plain values that containers get beside those they have.

    Returns:
        Successors of objects that cannot change, by the identity of the object they succeed.

    Raises:
        CorruptCheckpointError: Some bytes are damaged.
        StorageError: The files could not be read.
        RefusedError: An object did not take its value.
        UnsupportedError: An adapter has no way to give an object its value.
    """
    filled: list[tuple[Take, dict[str, Array]]] = []
    others: list[Take] = []
    in_place = Fetch(reader, staging=_STAGING)
    with collection_paused():
        for take in takes:
            arrays = {value.name: value.destination for value, _ in take.values if value.destination is not None}
            if arrays:
                filled.append((take, arrays))
                for value, key in take.values:
                    if value.destination is not None:
                        in_place.add(key, value.destination)
            if len(arrays) < len(take.values):
                if "assign" not in take.adapter.overrides:
                    raise _lost(reader, take)
                others.append(take)
    assigned = _Assigned(reader, others) if others else None
    if assigned is not None:
        assigned.verify()
    in_place.verify()
    if growth is not None and (growth.changes or growth.cuts):
        growth.apply(undo)
    successors = assigned.deliver(undo) if assigned is not None else {}
    former = {obj.root: obj.root.value for obj in holders if isinstance(obj, Place)}
    trees = rebuild(holders, successors) if former else []
    if filled:
        _keep_destinations(filled, undo)
        in_place.deliver()
    for take, arrays in filled:
        _assign(reader, take, arrays)
    if trees:
        undo.add(partial(_put_back, trees, former))
        put(trees)
    if successors:
        _substitute(holders, successors, undo)
    return successors


def _keep_destinations(filled: Sequence[tuple[Take, dict[str, Array]]], undo: Undo) -> None:
    """Keeps the old values of what is read straight into memory, as far as there is room for them."""
    kept: list[tuple[Array, Array]] = []

    def put_back() -> None:
        for array, old in kept:
            array[...] = old
        for take, arrays in filled:
            take.adapter.assign(take.obj, arrays)

    undo.add(put_back)
    destinations = [array for _, arrays in filled for array in arrays.values()]
    kept += [(array, array.copy()) for array in destinations if undo.has_room(array.nbytes)]


def _put_back(trees: Sequence[Place], former: Mapping[Place, Any]) -> None:
    for place in trees:
        place.value = former[place]
        try:
            put([place])
        except Exception:
            # What refuses this may have refused the new tree, too.
            holder = place.holder() if place.holder is not None else None
            if _children(holder).get(place.key) is not place or place.value is not former[place]:
                raise


def _replace_back(adapter: Adapter, holder: Any, former: Mapping[str, Any]) -> None:
    try:
        adapter.replace(holder, former)
    except Exception:
        # What refuses this may have refused the successors, too.
        present = _children(holder)
        if any(present.get(name) is not child for name, child in former.items()):
            raise


def _children(holder: Any) -> dict[str, Any]:
    adapter = adapter_of(holder)
    return {} if adapter is None else dict(live_children(adapter, holder))


def _assign(reader: BundleReader, take: Take, arrays: Mapping[str, Any]) -> Any:
    try:
        given = {value.name: value.taken(arrays[value.name]) for value, _ in take.values if value.name in arrays}
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


def _mismatch(prefix: str, problems: Sequence[Entry]) -> MismatchError:
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
        remedy="give the live object the saved shape and dtype, restore without this object in the Checkpoint, or rename it",
    )
    error.report = Report(prefix, tuple(problems))
    return error


class _Assigned:
    """The values that do not go straight into memory: objects take them one after the other, or none does.

    Args:
        reader: The open checkpoint.
        takes: The objects that take such values.
    """

    def __init__(self, reader: BundleReader, takes: Sequence[Take]) -> None:
        self._reader = reader
        self._kept = Fetch(reader)
        self._batches: list[list[Take]] = []
        room, filled = _ASSIGNED, _ASSIGNED
        wanted = [take._replace(values=[pair for pair in take.values if pair[0].destination is None]) for take in takes]
        self._in_boxes = {
            value
            for take in wanted
            for value, key in take.values
            if value.in_boxes and reader.spec(key).nbytes > _IN_BOXES
        }
        # Those that may refuse come first, so that the others need no old values to go back to; then those that get
        # successors, which changes nothing yet.
        ranked = [(_rank(take), take) for take in wanted]
        ranked.sort(key=lambda pair: (pair[0], pair[1].adapter.turn))
        self._order: list[tuple[Take, int, int]] = []
        for rank, take in ranked:
            size = sum(reader.entry(key).size for value, key in take.values if value not in self._in_boxes)
            if size <= room:
                room -= size
                self._order.append((take, rank, _KEPT))
                for value, key in take.values:
                    if value not in self._in_boxes:
                        self._kept.add(key, None)
                continue
            if filled + size > _ASSIGNED:
                self._batches.append([])
                filled = 0
            filled += size
            self._batches[-1].append(take)
            self._order.append((take, rank, len(self._batches) - 1))

    def verify(self) -> None:
        """Reads and checks all bytes; nothing changes."""
        self._kept.verify()
        again = [
            key
            for batch in self._batches
            for take in batch
            for value, key in take.values
            if value not in self._in_boxes
        ]
        in_boxes = [key for take, _, _ in self._order for value, key in take.values if value in self._in_boxes]
        if again or in_boxes:
            check_all(self._reader, again + in_boxes)

    def deliver(self, undo: Undo) -> dict[int, Any]:
        """Hands the values over.

        Args:
            undo: Gets what takes back each change.

        Returns:
            Successors of objects that cannot change, by the identity of the object they succeed.
        """
        # Backwards, so that each array is gone from here when it is given out.
        kept = self._kept.deliver()[::-1]
        streamed: list[Array] = []
        batch = _KEPT
        successors: dict[int, Any] = {}
        for take, rank, number in self._order:
            if number > batch:
                batch = number
                streamed = self._read(self._batches[number])
            source = kept if number == _KEPT else streamed
            given: dict[str, Array | StoredTensor] = {
                value.name: Boxes(self._reader, key) if value in self._in_boxes else source.pop()
                for value, key in take.values
            }
            if rank == _REFUSING:
                undo.add(take.adapter.before_assign(take.obj))
            elif rank == _CHANGED:
                size = sum(self._reader.spec(key).nbytes for _, key in take.values)
                undo.add_if_small(size, partial(take.adapter.before_assign, take.obj))
            successor = _assign(self._reader, take, given)
            if successor is None and not isinstance(take.obj, Place):  # a place may hold None
                returned(take.adapter, "assign", successor)
            if successor is not take.obj:
                successors[id(take.obj)] = successor
            del given, successor
        return successors

    def _read(self, takes: Sequence[Take]) -> list[Array]:
        """The values of a batch, backwards."""
        fetch = Fetch(self._reader)
        for take in takes:
            for value, key in take.values:
                if value not in self._in_boxes:
                    fetch.add(key, None)
        fetch.verify()
        return fetch.deliver()[::-1]


def _rank(take: Take) -> int:
    if take.adapter.may_refuse(take.obj):
        return _REFUSING
    return _SUCCEEDED if take.adapter.functional or isinstance(take.obj, Place) else _CHANGED


def _substitute(holders: Sequence[Any], successors: dict[int, Any], undo: Undo) -> None:
    """Puts successors wherever a holder has what they succeed; tuples cannot change, so they get successors in turn."""
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
