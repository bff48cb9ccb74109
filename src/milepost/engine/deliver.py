"""Giving saved values to the live objects that take them: all of them, or none.

Everything that can be known beforehand is checked first: that every value fits its object, and that all bytes have
their checksums. Objects that run code of their own when they take a value (`PythonState`, for example) come next, and
get their old values back if one of them refuses. Last, plain values are read straight into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from milepost.bundle import BundleReader, Fetch
from milepost.engine.collector import collection_paused
from milepost.engine.report import Entry, Outcome, Report
from milepost.errors import CorruptCheckpointError, KeyNotFoundError, MismatchError
from milepost.graph.adapter import Adapter, Array, Value, adapter_of
from milepost.graph.traversal import live_children
from milepost.graph.variable import shape_fits
from milepost.tensor.spec import format_shape

_STAGING: Final = 32 << 20
"""Bytes of small tensors that one restore may hold between checking and delivering them."""
_MOST_LISTED: Final = 10


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
                spec = reader.spec(key)
            except KeyNotFoundError as error:
                raise CorruptCheckpointError(
                    "the object graph names a tensor that the checkpoint does not hold",
                    key=key,
                    file=reader.prefix,
                    remedy="restore another checkpoint",
                ) from error
            if spec.dtype is not value.dtype and spec.dtype not in value.accepts:
                problems.append(Entry(Outcome.WRONG_DTYPE, key, str(spec), live_spec(value)))
            elif spec.shape != value.shape and not shape_fits(spec.shape, value.shape):
                problems.append(Entry(Outcome.WRONG_SHAPE, key, str(spec), live_spec(value)))
    if problems:
        raise _mismatch(reader.prefix, problems)


def deliver(reader: BundleReader, takes: Sequence[Take], holders: Sequence[Any]) -> dict[int, Any]:
    """Verifies and gives all values.

    Args:
        reader: The open checkpoint.
        takes: What `check` has found to fit.
        holders: The objects that may hold objects that cannot change, and must be given their successors.

    Returns:
        Successors of objects that cannot change, by the identity of the object they succeed.

    Raises:
        CorruptCheckpointError: Some bytes are damaged; nothing was changed.
        StorageError: The files could not be read.
    """
    assigned = Fetch(reader, staging=_STAGING)
    in_place = Fetch(reader, staging=_STAGING)
    with collection_paused():
        for take in takes:
            for value, key in take.values:
                (in_place if value.destination is not None else assigned).add(key, value.destination)
    assigned.verify()
    in_place.verify()
    successors = _assign(takes, assigned.deliver())
    in_place.deliver()
    for take in takes:
        arrays = {value.name: value.destination for value, _ in take.values if value.destination is not None}
        if arrays:
            take.adapter.assign(take.obj, arrays)
    if successors:
        _substitute(holders, successors)
    return successors


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
        remedy="give the live object the saved shape and dtype, or leave it out of what is restored",
    )
    error.report = Report(prefix, tuple(problems))
    return error


def _assign(takes: Sequence[Take], arrays: Sequence[Array]) -> dict[int, Any]:
    """Hands over values that do not go straight into memory; if an object refuses, all get their old ones back."""
    remaining = iter(arrays)
    successors: dict[int, Any] = {}
    before: list[tuple[Take, dict[str, Array]]] = []
    for take in takes:
        given = {value.name: next(remaining) for value, _ in take.values if value.destination is None}
        if not given:
            continue
        before.append((take, _present_values(take)))
        try:
            successor = take.adapter.assign(take.obj, given)
        except BaseException:
            for earlier, values in before:
                if values:
                    earlier.adapter.assign(earlier.obj, values)
            raise
        if successor is not take.obj:
            successors[id(take.obj)] = successor
    return successors


def _present_values(take: Take) -> dict[str, Array]:
    """Copies of what an object holds now; empty if its own code cannot tell, as before it was ever used."""
    try:
        return {value.name: value.read().copy() for value in take.adapter.values(take.obj) if value.destination is None}
    except Exception:
        # Whatever a user's own serialize() raises before it was ever used, the object can still be restored.
        return {}


def _substitute(holders: Sequence[Any], successors: dict[int, Any]) -> None:
    """Puts successors wherever a holder has what they succeed; tuples cannot change, so they get successors in turn."""
    settled = False
    while not settled:
        settled = True
        for obj in reversed(holders):
            holder = successors.get(id(obj), obj)
            adapter = adapter_of(holder)
            if adapter is None or adapter.leaf:
                continue
            changes = {
                name: successors[id(child)] for name, child in live_children(adapter, holder) if id(child) in successors
            }
            if changes:
                successor = adapter.replace(holder, changes)
                if successor is not holder:
                    successors[id(obj)] = successors[id(holder)] = successor
                    settled = False
