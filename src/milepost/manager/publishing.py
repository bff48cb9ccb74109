"""What a manager does with a checkpoint that has just been saved: it lists the checkpoint, then deletes old ones."""

from __future__ import annotations

from contextlib import suppress

from milepost.errors import StorageError, warn
from milepost.manager.managed_series import ManagedSeries
from milepost.series.pins import removal
from milepost.series.removal import remove_bundles
from milepost.storage.system_errors import is_full


def publish(series: ManagedSeries, prefix: str, durable: bool, metadata: bytes | None) -> None:
    """Lists a checkpoint that has been saved, and deletes old ones. With several processes, only process 0 calls this.

    Args:
        series: The series that the checkpoint belongs to.
        prefix: The checkpoint.
        durable: Whether the checkpoint survives a power cut. If not, nothing is deleted: only older checkpoints might be left.
        metadata: What was saved with it, as `milepost.series.metadata.encode` returned it.

    Raises:
        StateFileError: The state file is malformed.
        StorageError: The state file cannot be written.
    """
    with series.lock:
        series.metadata.remember(prefix, metadata)
        series.listing.add(prefix)
        series.set_latest(prefix)
        try:
            series.listing.record(prefix)
        except StorageError as error:
            if not (durable and is_full(error) and _delete_old(series, prefix)):
                raise
            return  # the old checkpoints have made room for the list
        if not durable:
            return
        try:
            _delete_old(series, prefix)
        except Exception as error:  # a policy of the program may raise anything
            warn(f"{prefix} is saved, but older checkpoints could not be removed: {error}")


def follow(series: ManagedSeries, prefix: str) -> None:
    """Reads what process 0 has listed and deleted, after a save by several processes."""
    with series.lock:
        series.metadata.forget(prefix)
        series.listing.load()
        series.set_latest(prefix)


def _delete_old(series: ManagedSeries, latest: str) -> bool:
    """Deletes what the policy of a manager lets go of, and lists the rest. Returns whether there was any."""
    policy, listing = series.policy, series.listing
    if policy.keeps_all or (policy.max_to_keep is not None and len(listing.managed) <= policy.max_to_keep):
        return False
    decision = policy.apply(series.facts(metrics=policy.uses_metrics), listing.last_preserved)
    if len(decision.keep) == len(listing.managed):
        return False
    listing.last_preserved = decision.last_preserved
    listing.drop({each.prefix for each in decision.preserve})
    doomed = [each.prefix for each in decision.delete if listing.is_own(each.prefix)]
    with removal(series.storage, doomed) as free:
        try:
            remove_bundles(series.storage, free)
        except BaseException:
            with suppress(StorageError):  # the first error is raised
                listing.record(latest)
            raise
        finally:
            listing.put_right()
            for prefix in free:
                series.metadata.forget(prefix)
        pinned = set(doomed).difference(free)
        listing.drop({each.prefix for each in decision.delete}.difference(pinned))
        listing.record(latest)
    return True
