"""Compares the last checkpoints of two runs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from milepost.bundle import BundleReader
from milepost.graph.keys import short_name
from milepost.tensor import TensorSpec
from milepost.tools import amounts
from milepost.tools.named import open_named
from milepost.tools.resumes.facts import short
from milepost.tools.resumes.finding import Finding
from milepost.tools.values.comparison import Change, Comparison, NotArrays
from milepost.tools.values.tensors import Row

_MOST_LISTED = 5


def compare_checkpoints(first: str, second: str, left_out: Sequence[str] = ()) -> Finding | None:
    """How two checkpoints differ; None if every value is the same, bit for bit.

    Args:
        first: The prefix of the checkpoint of the undisturbed run.
        second: That of the other run.
        left_out: Libraries whose global random state is not compared: ``python``, ``numpy``.

    Raises:
        MilepostError: One of them cannot be read.
    """
    with open_named(first) as before, open_named(second) as after:
        comparison = Comparison(before, after)
        comparison.read(comparison.to_read())
        changes = [change for change in comparison.changes() if not _is_state_of(change.key, left_out)]
        if changes:
            return _finding_of_changes(comparison, changes)
        return _finding_of_others(comparison.not_arrays) or _finding_of_bits(comparison, left_out)


def holds_state_of(prefix: str, library: str) -> bool:
    """Whether a checkpoint has the global random state of a library.

    Raises:
        MilepostError: It cannot be read.
    """
    with open_named(prefix) as reader:
        return any(_is_state_of(key, [library]) for key in reader.keys())  # noqa: SIM118 - a reader is not a mapping


def _finding_of_changes(comparison: Comparison, changes: Sequence[Change]) -> Finding:
    change, names = changes[0], [short_name(change.key) for change in changes]
    expected, found = map(_text, comparison.readers, (change.before, change.after))
    if change.difference is not None:
        each = change.difference
        found += f", {amounts.difference(each.count, each.unequal, each.largest, each.relative)}"
    more = [f"{len(names) - _MOST_LISTED} more"] if len(names) > _MOST_LISTED else []
    others = ", ".join([*names[1:_MOST_LISTED], *more])
    problem = f"the last checkpoints of the two runs differ{f', also in {others}' if others else ''}"
    return Finding(problem, names[0], expected, found)


def _text(reader: BundleReader, row: Row | None) -> str:
    """What a checkpoint has."""
    if row is None:
        return "no such value"
    spec = str(TensorSpec(row.dtype, row.shape))
    return f"{spec} {short(reader.read(row.key).item())}" if math.prod(row.shape) == 1 else spec


def _finding_of_others(others: NotArrays) -> Finding | None:
    pairs: dict[str, tuple[str, str]] = {
        **others.changed,
        **{name: (text, "nothing") for name, text in others.removed.items()},
        **{name: ("nothing", text) for name, text in others.added.items()},
    }
    return next(
        (Finding("the last checkpoints of the two runs differ", key, *pair) for key, pair in pairs.items()), None
    )


def _is_state_of(key: str, libraries: Sequence[str]) -> bool:
    """Whether a value is the global random state of a library, as `milepost.adapters.random_state.global_state` has it."""
    return any(re.search(rf"[/S]{library}\.Sstate\b", key) for library in libraries)


def _finding_of_bits(comparison: Comparison, left_out: Sequence[str]) -> Finding | None:
    """Equal values with other bits, such as zeros of another sign, have other checksums."""
    (first, second), (old, new) = comparison.sides, comparison.pairs
    if not (first.catalogue.is_masked and second.catalogue.is_masked):
        return None
    is_other = first.catalogue.checksum[old] != second.catalogue.checksum[new]
    keys = (first.keys[place] for place in old[is_other].tolist())
    key = next((each for each in keys if not _is_state_of(each, left_out)), None)
    if key is None:
        return None
    problem = "the last checkpoints of the two runs have equal values with other bits, such as the sign of a zero"
    return Finding(problem, short_name(key), "the same bits", "other bits")
