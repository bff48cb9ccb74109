"""Assigns saved values to the live objects that match them: all of them, or none.

The order is:

1. Check that every value fits its object (`milepost.restoring.check`).
2. Read and verify all values. Objects without an old value get their new one in this step: the successors of values
   that cannot change, which no object holds yet, and slot variables that the restore has made. The others are kept if
   they are small.
3. Assign to objects that run their own code, such as `PythonState`. They get their old values back if one of them raises an error.
4. Assign to objects that take an array and are not expected to fail.
5. Read the other values straight into the memory of their objects.

Steps 3 and 4 are those of `milepost.restoring.assigned`.

Small old values are kept in steps 4 and 5 too, so that a late failure can be undone (`milepost.restoring.undo`).

So large values that replace old ones are read twice, because the old ones must stay if a checksum is wrong. With
``CheckpointOptions(verify_first=False)`` they are read once: step 2 leaves them out, and steps 4 and 5 verify them.

The arrays that are held at a time, besides the new values, take at most 64 MiB, or what one object needs. For an array that is
spread over devices, each device gets its own box, which is read when the array of that device is made. A large tensor of PyTorch on a GPU is
read part by part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final

import numpy as np

from milepost.bundle import BundleReader, Fetch
from milepost.collector import paused_for
from milepost.engine.progress import Reporter, saved_sizes
from milepost.errors import MilepostError
from milepost.graph.adapter import Adapter, Array, adapter_during
from milepost.graph.contract.operation import Operation
from milepost.graph.remedies import returned, without_assign
from milepost.graph.traversal import live_children
from milepost.graph.trees.places import Place, put, rebuild
from milepost.restoring.assigned import Assigned
from milepost.restoring.growth import Growth
from milepost.restoring.take import Take
from milepost.restoring.undo import Undo

_STAGING: Final = 24 << 20
"""Bytes of small tensors that a restore may hold between the check and the delivery, for values with a destination."""
_NOTHING: Final = nullcontext()


def deliver(
    operation: Operation,
    reader: BundleReader,
    takes: Sequence[Take],
    holders: Sequence[Any],
    undo: Undo,
    *,
    growth: Growth | None = None,
    verified: Callable[[], object] | None = None,
    before_own_code: Callable[[], object] | None = None,
    progress: Reporter | None = None,
    fresh: Collection[int] = (),
    verify_first: bool = True,
) -> dict[int, Any]:
    """Verifies all values and assigns them.

    Args:
        operation: The restore, or the operation in which the objects came.
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
    in_place = Fetch(reader, staging=_STAGING, once=not verify_first)
    into_made = Fetch(reader, once=True) if fresh else None
    with paused_for(len(takes)):
        filled, others = _asked(reader, takes, in_place, into_made, fresh)
    assigned = Assigned(reader, others, verify_first=verify_first) if others else None
    del others  # they take memory
    stage = None if progress is None else _begin(progress, reader, takes, assigned, filled, verify_first)
    with _NOTHING if stage is None else stage():
        if assigned is not None:
            if assigned.may_refuse and before_own_code is not None:
                before_own_code()
            assigned.verify()
        if into_made is not None:
            into_made.verify()
        if verify_first:
            in_place.verify()
    if verified is not None:
        verified()
    if growth is not None and (growth.changes or growth.cuts):
        growth.apply(undo)
    with _NOTHING if stage is None else stage():
        successors = assigned.deliver(undo) if assigned is not None else {}
        places = [obj for obj in holders if isinstance(obj, Place)]
        former = _former_trees(operation, places) if places else {}
        trees = rebuild(operation.held, holders, successors) if former else []
        if filled:
            _keep_destinations(filled, undo)
            if not verify_first:
                in_place.verify()
            in_place.deliver()
    if trees:
        undo.add(partial(_put_back, operation, trees, former))
        put(operation, trees)
    if successors:
        _substitute(operation, holders, successors, undo)
    return successors


def _asked(
    reader: BundleReader, takes: Sequence[Take], in_place: Fetch, into_made: Fetch | None, fresh: Collection[int]
) -> tuple[list[Take], list[Take]]:
    """Asks for all values that are read into the memory of their objects.

    Returns:
        The objects with an old value that get values in this way, and those that get values in another way.
    """
    filled: list[Take] = []
    others: list[Take] = []
    for take in takes:
        fetch = into_made if into_made is not None and id(take.obj) in fresh else in_place
        read = 0
        for value, key in take.values:
            if value.destination is not None:
                fetch.add(key, value.destination)
                read += 1
        if read and fetch is in_place:
            filled.append(take)
        if read < len(take.values):
            if "assign" not in take.adapter.overrides:
                raise _no_way_to_assign(reader, take)
            others.append(take if not read else _without_destinations(take))
    return filled, others


def _former_trees(operation: Operation, places: Sequence[Place]) -> dict[Place, Any]:
    """The present value of each tree that has one of these places."""
    former = {place: operation.held[place] for place in places if place.parent is None}
    for root in {parent.root for parent in {place.parent for place in places if place.parent is not None}}:
        former[root] = operation.held[root]
    return former


def _without_destinations(take: Take) -> Take:
    return take._replace(values=[pair for pair in take.values if pair[0].destination is None])


def _keep_destinations(filled: Sequence[Take], undo: Undo) -> None:
    """Keeps the old values of objects whose memory is read into, up to a limit."""
    destinations: list[Array] = []
    size = 0
    for take in filled:
        for value, _ in take.values:
            if value.destination is not None:
                destinations.append(value.destination)
                size += value.destination.nbytes
    if not undo.has_room(size):
        destinations = [array for array in destinations if undo.has_room(array.nbytes)]
    former = [array.tobytes() for array in destinations]

    def put_back() -> None:
        for array, old in zip(destinations, former, strict=True):
            array[...] = np.ndarray(array.shape, array.dtype, old)

    undo.add(put_back)


def _put_back(operation: Operation, trees: Sequence[Place], former: Mapping[Place, Any]) -> None:
    for place in trees:
        operation.held[place] = former[place]
        try:
            put(operation, [place])
        except Exception:
            # An object that refuses its old tree may have refused the new one too.
            holder = place.holder() if place.holder is not None else None
            present = _children(operation, holder).get(place.key)
            if present is not place or operation.held[place] is not former[place]:
                raise


def _replace_back(operation: Operation, adapter: Adapter, holder: Any, former: Mapping[str, Any]) -> None:
    try:
        adapter.replace(holder, former)
    except Exception:
        # An object that refuses its old children may have refused the successors too.
        present = _children(operation, holder)
        if any(present.get(name) is not child for name, child in former.items()):
            raise


def _children(operation: Operation, holder: Any) -> dict[str, Any]:
    adapter = adapter_during(operation, holder)
    return {} if adapter is None else dict(live_children(operation, adapter, holder))


def _no_way_to_assign(reader: BundleReader, take: Take) -> MilepostError:
    value, key = next(pair for pair in take.values if pair[0].destination is None)
    return without_assign(take.adapter, value.name).with_context(key=key, file=reader.prefix)


def _begin(
    progress: Reporter,
    reader: BundleReader,
    takes: Sequence[Take],
    assigned: Assigned | None,
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


def _substitute(operation: Operation, holders: Sequence[Any], successors: dict[int, Any], undo: Undo) -> None:
    """Replaces objects by their successors in all holders. A tuple cannot change, so it gets a successor itself."""
    settled = False
    while not settled:
        settled = True
        for obj in reversed(holders):
            holder = successors.get(id(obj), obj)
            adapter = adapter_during(operation, holder)
            if adapter is None or adapter.leaf:
                continue
            former = {
                name: child for name, child in live_children(operation, adapter, holder) if id(child) in successors
            }
            changes = {name: successors[id(child)] for name, child in former.items()}
            if changes:
                undo.add(partial(_replace_back, operation, adapter, holder, former))
                successor = returned(adapter, "replace", adapter.replace(holder, changes))
                if successor is not holder:
                    successors[id(obj)] = successors[id(holder)] = successor
                    settled = False
