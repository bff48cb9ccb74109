"""Compares live values that the save has left out with the base that it names. Nothing changes.

The program has loaded the base before it restores. Values that the arguments of the restore leave alone are not compared, and neither are
those of objects that do not exist yet, or that ``convert`` has laid out otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from milepost.engine.digests import LiveValue, digests_of, remembered
from milepost.engine.restore_record import RestoreRecord
from milepost.errors import MilepostError, MismatchError, UnsupportedError, UntrackableError, importing
from milepost.graph.contract.operation import Operation
from milepost.graph.keys import tensor_key
from milepost.graph.traversal import walk
from milepost.tensor.spec import format_shape

if TYPE_CHECKING:
    from milepost.distributed.rounds import Rounds

_MOST_LISTED: Final = 10
_SHOWN: Final = 16
"""How many digits of a digest an error shows."""


def check_base(operation: Operation, record: RestoreRecord, rounds: Rounds | None) -> None:
    """Checks that the live values which the save has left out are those of its base.

    Args:
        operation: The restore.
        record: The record of the restore, which gets the keys of these values.
        rounds: The rounds of the operation, if several processes restore together.

    Raises:
        MismatchError: A value is another one than in the base.
        UnsupportedError: A live value has no elements, as on the meta device.
        CoordinationError: The processes hold different values, or one of them failed.
    """
    values = [*_live_values(operation, record)]
    try:
        found = digests_of(values) if rounds is None else _together(values, rounds)
    except (UnsupportedError, UntrackableError) as error:
        error.remedy = f"load the base {record.left_out.base!r} before you restore"
        raise
    expected = record.left_out.digests
    different = [each for each in values if found[each.key] != expected[each.key]]
    if different:
        raise _another_base(record, different, found)
    remembered(values, found)
    record.equal_to_base = frozenset(found)


def _together(values: Sequence[LiveValue], rounds: Rounds) -> dict[str, str]:
    with importing():
        from milepost.distributed.digests import digests_together  # a process that restores alone needs none

    return digests_together(values, rounds)


def equal_to_base(operation: Operation, record: RestoreRecord) -> frozenset[str]:
    """The keys of the live values that the save has left out and that have the digests of its base, as this process sees them. There are none if one
    cannot be read."""
    try:
        found = digests_of([*_live_values(operation, record)])
    except MilepostError:
        return frozenset()
    return frozenset(key for key, digest in found.items() if record.left_out.digests[key] == digest)


def _live_values(operation: Operation, record: RestoreRecord) -> Iterator[LiveValue]:
    live = walk(operation, slots=False)
    for number, values in live.values():
        path = live.paths[number]
        if path not in record.left_out.paths or record.translated.translation.leaves_alone(path):
            continue
        for value in values:
            key = tensor_key(path, value.name)
            if record.left_out.digests.get(key):
                yield LiveValue(key, value, live.objects[number], live.adapters[number])


def _another_base(record: RestoreRecord, different: list[LiveValue], found: Mapping[str, str]) -> MismatchError:
    left_out, first = record.left_out, different[0]
    more = "".join(f"\n    also {each.key}" for each in different[1:_MOST_LISTED])
    if len(different) > _MOST_LISTED:
        more += f"\n    and {len(different) - _MOST_LISTED} more"
    live = f"{first.dtype}[{format_shape(first.value.shape)}]"
    return MismatchError(
        f"the base is another one than that with which the checkpoint was saved: {len(different)} of {len(found)} values differ; nothing was "
        "changed",
        key=first.key,
        file=record.reader.prefix,
        expected=f"{left_out.values.get(first.key, '')} of the base {left_out.base!r}, whose digest is {left_out.digests[first.key][:_SHOWN]}...",
        found=f"{live}, whose digest is {found[first.key][:_SHOWN]}...{more}",
        remedy=f"load the base {left_out.base!r} before you restore; to keep the live values without a comparison, name them in ignore= of the restore",
    )
