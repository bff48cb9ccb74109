"""How a run goes on through failed and hanging saves, as `milepost.Tolerate` says.

::

    settle   wait for the save in progress. If it hangs, skip this save, which counts as failed
    write    save in the background, also if the save is not asynchronous: then the call waits, but not for a save that hangs
    limit    raise an error if too many saves have failed in a row, or the last good one is too long ago

With several processes, all of them settle and compare with the limits together: what one process finds counts for all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from milepost.checkpoint.checkpoint import is_saving, settle
from milepost.ending import before_end, fail
from milepost.engine.options import CheckpointOptions
from milepost.errors import MilepostError, StorageError, printable, warn
from milepost.graph.description import counted, moment
from milepost.logs import WARNING, heard
from milepost.manager.agreement import first_error
from milepost.manager.health import FailedSave, SaveRecord
from milepost.manager.managed_series import ManagedSeries
from milepost.manager.tolerance import is_tolerable

if TYPE_CHECKING:
    from milepost.manager.managed_save import ManagedSave


def save_tolerantly(
    series: ManagedSeries, number: int, options: CheckpointOptions, write: Callable[[], ManagedSave | None]
) -> str | None:
    """Saves, unless an earlier save hangs.

    Args:
        series: The series of the manager, which has a policy.
        number: The number of the checkpoint.
        options: How to save, as `ManagedSeries.with_options` returns it.
        write: Begins to save in the background.

    Returns:
        The path of the checkpoint, or None if it was not saved.

    Raises:
        StorageError: Too many saves have failed.
        MilepostError: The save has failed in a way that is not tolerated.
    """
    prefix = series.path_of(number)
    hangs = first_error(options, f"begin to save {prefix}", lambda: _settled(series))
    if hangs is not None:
        note_failed(series, number, hangs)
    _raise(series, first_error(options, f"go on to save {prefix}", lambda: _over_limit(series)))
    if hangs is not None:
        return None
    save = _written(series, number, write)

    def ended() -> StorageError | None:
        if save is not None and not options.is_async:
            _wait_for(series, save)
        return _over_limit(series)

    _raise(series, first_error(options, f"end to save {prefix}", ended))
    if save is None or save.failure is not None:
        return None
    return prefix


def note_failed(
    series: ManagedSeries, number: int, error: MilepostError, before: FailedSave | None = None
) -> tuple[FailedSave, bool]:
    """Records a failed save and, if the manager tolerates it, tells of it.

    Args:
        series: The series of the manager.
        number: The number of the checkpoint.
        error: The error of the save.
        before: What was recorded for the same save before.

    Returns:
        What is recorded, and whether the manager tolerates it.
    """
    failure = series.record.failed(series.path_of(number), number, error, before)
    if series.tolerate is None or not is_tolerable(error):
        series.record.untold = None  # the error is raised
        return failure, False
    if not series.record.ends_with_error:
        series.record.ends_with_error = True
        before_end(partial(_fail_at_end, series.record, os.getpid()))
    series.record.untold = _failed(series, "the last save has failed")
    message = f"{failure.path} is not saved, and the run goes on ({_count(series)}): {error}"
    if (log := heard(WARNING)) is not None:
        log.warning("%s", printable(message, one_line=True))
    warn(message)
    return failure, True


def _over_limit(series: ManagedSeries) -> StorageError | None:
    """The error for too many failures; None if they are within the limits."""
    record, policy = series.record, series.tolerate
    failures = record.failures
    if policy is None or not failures:
        return None
    if policy.saves is not None and record.consecutive > policy.saves:
        return _failed(series, f"{counted(record.consecutive, 'save')} in a row have failed")
    if policy.seconds is not None and record.seconds_since_good > policy.seconds:
        return _failed(series, f"a save has failed, {record.seconds_since_good:.0f} seconds after the last good one")
    return None


def raise_last(series: ManagedSeries) -> None:
    """Raises an error if the last save has failed and the program did not get its error.

    Raises:
        StorageError: It lists the failures since the last good save.
    """
    untold, series.record.untold = series.record.untold, None
    if untold is not None:
        raise untold


def _raise(series: ManagedSeries, error: MilepostError | None) -> None:
    if error is not None:
        series.record.untold = None
        raise error


def _settled(series: ManagedSeries) -> MilepostError | None:
    """Waits for the save in progress. Returns the error if it hangs. Other errors are raised."""
    try:
        settle(series.checkpoint)
    except StorageError as error:
        if not is_saving(series.checkpoint):
            raise  # of a save that this manager did not begin
        return error
    return None


def _written(series: ManagedSeries, number: int, write: Callable[[], ManagedSave | None]) -> ManagedSave | None:
    """Begins to save. Returns None if that has failed."""
    try:
        return write()
    except MilepostError as error:
        if not note_failed(series, number, error)[1]:
            raise
        return None


def _wait_for(series: ManagedSeries, save: ManagedSave) -> None:
    hangs = _settled(series)
    if hangs is not None and not save.fail(hangs):
        raise hangs


def _failed(series: ManagedSeries, problem: str) -> StorageError:
    failures = series.record.failures
    last, good = failures[-1].error, series.last_good
    error = StorageError(
        problem,
        errno=getattr(last, "errno", None),
        file=series.directory,
        expected=f"at most what {series.tolerate} allows, and a last save that is good",
        found="\n    ".join(["", *map(str, failures)]),
        remedy=(f"{last.remedy}; then " if last.remedy else "make the storage work; then ")
        + (f"start the run again, which continues from {good.path}" if good is not None else "start the run again"),
    )
    error.__cause__ = last
    return error


def _count(series: ManagedSeries) -> str:
    """The failures in a row, and the last good save."""
    good, policy = series.last_good, series.tolerate
    most = "" if policy is None or policy.saves is None else f" of at most {policy.saves}"
    last = "none" if good is None else f"{good.path}, {moment(good.time.timestamp())}"
    return f"failure {series.record.consecutive}{most} in a row; the last good save: {last}"


def _fail_at_end(record: SaveRecord, process: int) -> None:
    """Lets the process end with an error if the program did not get that of the last save. A forked child has not failed."""
    untold, record.untold = record.untold, None
    if untold is not None and process == os.getpid():
        fail(printable(str(untold)))
