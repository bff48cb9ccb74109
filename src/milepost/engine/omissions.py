"""Reports state that a checkpoint leaves out, in saves and restores.

A save raises an error, or warns if the state may be left out on purpose. A restore counts the state as missing, so that
assertions fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from milepost.engine.options import CheckpointOptions
from milepost.engine.report import Outcome, ReportEntry
from milepost.errors import UntrackableError, UntrackedWarning, import_if_possible, warn
from milepost.graph.live_graph import LiveGraph
from milepost.graph.omissions import Omitted

_MOST_LISTED: Final = 10
_MOST_COMPARED: Final = 5000
"""The largest number of paths that are compared with an unknown one. More would make the warning take seconds."""


def refuse_omissions(omissions: Sequence[Omitted], options: CheckpointOptions) -> None:
    """Raises an error for omissions, and warns of doubtful ones.

    Args:
        omissions: The state that the save would leave out.
        options: Which paths may be left out, and whether doubtful omissions are errors too.

    Raises:
        UntrackableError: The save would leave out something that its framework would save.
    """
    refused = []
    for omitted in omissions:
        if omitted.is_allowed(options.allow_unsaved):
            continue
        if options.strict or not omitted.doubtful:
            refused.append(omitted)
        else:
            remedy = f"; {omitted.remedy}" if omitted.remedy else ""
            warn(f"{omitted.path or 'the root'}: not saved: {omitted.reason}{remedy}", UntrackedWarning)
    if not refused:
        return
    first, others = refused[0], refused[1:]
    listed = [f"{omitted.path}: {omitted.reason}" for omitted in others[:_MOST_LISTED]]
    if others[_MOST_LISTED:]:
        listed.append(f"and {len(others) - _MOST_LISTED} more")
    also = "".join(f"\n    also {line}" for line in listed)
    leave = how_to_leave_out(first.path)
    raise UntrackableError(
        f"this object would not be saved: {first.reason}{also}",
        key=first.path,
        remedy=f"{first.remedy}; {leave}" if first.remedy else leave,
    )


def warn_of_unknown_paths(live: LiveGraph, options: CheckpointOptions) -> None:
    """Warns of paths in ``allow_unsaved`` that name nothing of the live objects, such as one with a typing error.

    A path of an object that is saved is accepted, since whether it could be saved may change from one save to the next.

    Args:
        live: The live objects of a save.
        options: The options of the save.
    """
    allowed = {path for path in options.allow_unsaved or () if path}
    if not allowed:
        return
    difflib = import_if_possible("difflib")  # only errors and warnings need it
    known = {*live.paths, *(omitted.path for omitted in live.omissions)}
    for path in sorted(allowed - known):
        near = difflib.get_close_matches(path, known, 1) if difflib and len(known) <= _MOST_COMPARED else []
        warn(
            f"allow_unsaved names {path!r}, but no object has this path; "
            + (f"did you mean {near[0]!r}?" if near else "correct the path, or leave it out of allow_unsaved")
        )


def how_to_leave_out(path: str) -> str:
    """The remedy for an object that cannot be saved and need not be."""
    return f"to leave it out knowingly, save with CheckpointOptions(allow_unsaved=[{path!r}])"


def unsaveable(omissions: Iterable[Omitted], allowed: Sequence[str]) -> list[ReportEntry]:
    """Entries of a report for live state that no checkpoint can hold. Doubtful omissions have no entry.

    Args:
        omissions: The state that a save would leave out.
        allowed: Paths of objects that may be left out, with all objects below them.
    """
    return [
        ReportEntry(Outcome.MISSING, omitted.path, live=omitted.kind, note=f"cannot be saved: {omitted.reason}")
        for omitted in omissions
        if not omitted.doubtful and not omitted.is_allowed(allowed)
    ]
