"""What a new manager does about earlier runs: it completes what they left unfinished, and warns of what it will not restore."""

from __future__ import annotations

from milepost.errors import StorageError, warn
from milepost.manager.managed_series import ManagedSeries
from milepost.series.announcement import wait_until_told
from milepost.series.leftovers import sweep_leftovers
from milepost.series.removal import finish_removals
from milepost.series.saved_model import is_saved_model
from milepost.series.series import list_announced, numbered


def complete_earlier_runs(series: ManagedSeries) -> None:
    """Lists checkpoints that killed processes had saved, completes deletions, and removes temporary files of crashed saves. In a store, this first
    waits until each process that has saved one and not listed it counts as killed, or lists it.

    A warning tells of files that cannot be removed.
    """
    storage, directory, home = series.storage, series.directory, series.listing.home
    try:
        wait_until_told(storage, directory)
        list_announced(storage, directory)
        finish_removals(storage, home, directory)
        for each in dict.fromkeys((directory, home)):
            sweep_leftovers(storage, each)
    except StorageError as error:
        warn(f"leftovers of crashed saves could not be removed: {error}")


def warn_of_unlisted(series: ManagedSeries) -> None:
    """Warns of checkpoints and of a SavedModel in the directory, if the state file lists nothing to restore."""
    if series.listing.restorable() is not None:
        return
    unlisted = numbered(series.storage, series.prefix)
    if unlisted:
        warn(
            f"no state file lists the checkpoints in {series.directory}, so restore_or_initialize() will not "
            f"restore them; the newest is {unlisted[-1]}: call adopt_checkpoints() first to continue from them, or use "
            "another directory"
        )
    if is_saved_model(series.storage, series.directory):
        warn(
            f"{series.directory} is a SavedModel, which a CheckpointManager does not restore: to start from its weights, call "
            "milepost.Checkpoint(model).read(directory) before restore_or_initialize()"
        )
