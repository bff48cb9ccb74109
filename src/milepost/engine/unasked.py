"""Warnings about restores whose status the program did not ask.

The status of a restore reports values that were not restored. If the program asks it for no report or assertion, milepost warns:

- of live values that were not in the checkpoint: when the status is deleted, in the next save of the same root, or at the end of
  the process, whichever comes first;
- of saved values that no object took: when no object can take them any more, that is, when the restore or the process ends.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from milepost.engine.report import ReportEntry
from milepost.engine.restore_record import RestoreRecord
from milepost.errors import UnrestoredWarning, warn
from milepost.graph.contract.operation import Operation
from milepost.graph.description import counted

_MOST_LISTED: Final = 10


class Inquired(Protocol):
    """A restore, as warnings use it."""

    @property
    def record(self) -> RestoreRecord: ...
    def missing(self, operation: Operation) -> list[ReportEntry]: ...
    def warn_of_unused(self) -> None: ...


restores: Final[weakref.WeakSet[Inquired]] = weakref.WeakSet()
"""The restores that warn at the end of the process, with their statuses."""


def warn_before_save(operation: Operation) -> None:
    """Warns of live values that restores of this root did not restore, unless the program has asked their statuses."""
    for restore in list(restores):
        if restore.record.bound[0] is operation.root:
            warn_of_missing(restore, operation)


def warn_of_missing(restore: Inquired, operation: Operation) -> None:
    """Warns of live values that a restore did not restore, unless the program has asked its status.

    Args:
        restore: The restore.
        operation: The operation. Its root is that of the restore.
    """
    record = restore.record
    nothing = record.matched_nothing
    if record.is_asked or not (record.may_lack or nothing):
        return
    missing: list[ReportEntry] = []
    with suppress(Exception):  # an error of the live objects is raised where the program uses them
        missing = restore.missing(operation)
    if not missing:
        return
    record.is_asked = True
    matched = "no object except the root was matched, and " if nothing else ""
    warn(
        f"{record.reader.prefix}: {matched}{counted(len(missing), 'live value')} "
        f"{'is not in the checkpoint and keeps what it' if len(missing) == 1 else 'are not in the checkpoint and keep what they'} had "
        "(print report() of the status that the restore returned, to compare the names; "
        f"call expect_partial() on it if that is intended):{listed(missing)}",
        UnrestoredWarning,
        record.place,
    )


def listed(entries: Sequence[object]) -> str:
    """The first entries, one in a line, for the end of a warning."""
    lines = "".join(f"\n  {entry}" for entry in entries[:_MOST_LISTED])
    return lines + (f"\n  and {len(entries) - _MOST_LISTED} more" if len(entries) > _MOST_LISTED else "")


def _warn_at_exit() -> None:
    for restore in list(restores):
        for status in list(restore.record.statuses):
            status.warn_of_missing()
        restore.warn_of_unused()
    restores.clear()


atexit.register(_warn_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=restores.clear)  # the parent process warns
