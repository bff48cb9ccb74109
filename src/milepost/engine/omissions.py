"""What saves and restores do about what a checkpoint leaves out.

A save fails, or warns where that may well be meant. A restore counts it as missing, so that no assertion passes over it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from milepost.engine.options import CheckpointOptions
from milepost.engine.report import Entry, Outcome
from milepost.errors import UntrackableError, UntrackedWarning, warn
from milepost.graph.omissions import Omitted

_MOST_LISTED: Final = 10


def refuse_omissions(omissions: Sequence[Omitted], options: CheckpointOptions) -> None:
    """Raises for omissions, and warns of those that may well be meant.

    Args:
        omissions: What would be left out.
        options: Which of it may be, and whether doubtful ones are errors too.

    Raises:
        UntrackableError: Something would be left out that its framework would have saved.
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
        f"would not be saved: {first.reason}{also}",
        key=first.path,
        remedy=f"{first.remedy}; {leave}" if first.remedy else leave,
    )


def how_to_leave_out(path: str) -> str:
    """The remedy for an object that cannot be saved, and need not be."""
    return f"to leave it out knowingly, save with CheckpointOptions(allow_unsaved=[{path!r}])"


def unsaveable(omissions: Iterable[Omitted], allowed: Sequence[str]) -> list[Entry]:
    """Entries of a report for live state that no checkpoint can hold, without what may well be meant.

    Args:
        omissions: What a save would leave out.
        allowed: Paths at or below which it may.
    """
    return [
        Entry(Outcome.MISSING, omitted.path, live=omitted.kind, note=f"cannot be saved: {omitted.reason}")
        for omitted in omissions
        if not omitted.doubtful and not omitted.is_allowed(allowed)
    ]
