"""The checkpoints that the state file of a directory lists for one manager, and those that it lists for others.

A directory has one state file and may have several series of checkpoints, each with its own manager. A manager
restores, keeps and removes the checkpoints of its own series, and leaves the entries of other series unchanged. A listed
checkpoint outside the directory belongs to no manager: it can be restored, and the next write of the state file drops it.
"""

from __future__ import annotations

import errno
import itertools
import os
import time
import weakref
from typing import Final

from milepost.bundle import index_path, parse_data_path
from milepost.errors import CheckpointNotFoundError, StorageError, warn
from milepost.retention import ManagedCheckpoint
from milepost.retention.rules import recover
from milepost.series.pins import pinned_in
from milepost.series.removal import finish_removals, remove_for_good
from milepost.series.series import (
    MOST_CHANGES,
    is_below,
    is_inside,
    is_of_series,
    known_checkpoints,
    numbered,
    place_of,
)
from milepost.series.state_file import CheckpointState, read_state_file, read_to_change, record_state, state_of
from milepost.storage import Storage

_MOST_LISTED: Final = 3


class Listing:
    """The state file of a directory, as the manager of one series uses it.

    Args:
        storage: Where the directory is.
        directory: The directory.
        stem: The prefix of the checkpoints of the series, without number.
        holds_old: Whether checkpoints older than the last preserved one stay managed, because a policy may keep them.

    Attributes:
        managed: The checkpoints that this manager keeps or deletes, oldest first.
        last_preserved: When the last preserved checkpoint was saved, in seconds since the epoch.
    """

    _living: Final[weakref.WeakSet[Listing]] = weakref.WeakSet()

    def __init__(self, storage: Storage, directory: str, stem: str, *, holds_old: bool = False) -> None:
        self._storage = storage
        self._directory = directory
        self._stem = stem
        self._holds_old = holds_old
        self.managed: tuple[ManagedCheckpoint, ...] = ()
        self.last_preserved = 0.0
        self._half_removed: frozenset[str] = frozenset()
        self._candidates: tuple[str, ...] = ()
        self._others: tuple[ManagedCheckpoint, ...] = ()
        self._others_listed: tuple[str, ...] = ()
        self._others_preserved: float | None = None
        self._written: bytes | None = None
        Listing._living.add(self)

    def load(self) -> None:
        """Reads what earlier runs have listed.

        Raises:
            StateFileError: The state file is malformed.
            StorageError: The directory cannot be read.
        """
        now = time.time()
        state = known_checkpoints(self._storage, self._directory)
        if state is None:
            # a checkpoint that is saved right now must count as newer
            self.last_preserved = now - 1.0
            return
        outside = self._sort_out(state)
        of_series = set(self._candidates)
        checkpoints = [each for each in self._timed(state) if each.prefix in of_series]
        pinned = pinned_in(self._storage, self.home)
        recovered = recover(
            checkpoints, state.last_preserved_timestamp, now, lambda prefix: self._holds_old or prefix in pinned
        )
        if recovered.clock_went_back:
            warn(
                f"the clock is {recovered.clock_went_back:.0f} seconds behind the last preserved checkpoint timestamp in "
                f"{self._directory}; checkpoints saved since then will never be deleted"
            )
        self.managed, self.last_preserved = recovered.managed, recovered.last_preserved
        candidates = self._candidates
        self.put_right()
        self._candidates = candidates  # a restore says which of them are missing
        if outside:
            names = ", ".join(outside[:_MOST_LISTED]) + (", ..." if len(outside) > _MOST_LISTED else "")
            warn(
                f"the state file of {self._directory} lists checkpoints that are not named "
                f"{os.path.basename(self._stem)}-<number> there: {names}; they can be restored but are never removed"
            )

    def reload(self) -> None:
        """Reads the state file again, whatever was read before. Errors are those of `load`."""
        self.managed, self._written = (), None
        self._candidates = self._others_listed = ()
        self.load()

    def restorable(self) -> CheckpointState | None:
        """The checkpoints to restore from: those of this series or, if there are none, other listed ones.

        Checkpoints that another manager in this process manages are left out.
        """
        paths = self._candidates
        if not paths:
            paths = tuple(prefix for prefix in self._others_listed if not self._is_managed_by_another(prefix))
        return CheckpointState(paths[0], tuple(reversed(paths))) if paths else None

    @property
    def present(self) -> tuple[ManagedCheckpoint, ...]:
        """The managed checkpoints that were not found without an index."""
        return tuple(each for each in self.managed if each.prefix not in self._half_removed)

    @property
    def home(self) -> str:
        """The directory of the files of the series."""
        return os.path.dirname(self._stem)

    def is_own(self, prefix: str) -> bool:
        """Whether a checkpoint is of this series and in its directory."""
        return is_of_series(prefix, self._stem) and is_inside(self._storage, self.home, prefix)

    def remove(self, prefix: str) -> bool:
        """Removes a checkpoint for good, with its entry. Result and errors are those of `remove_for_good`."""
        self._written = None  # the state file changes
        try:
            try:
                return remove_for_good(self._storage, prefix, self._directory)
            finally:
                self._drop_removed(prefix)
        finally:  # Ctrl-C may have come before the line above
            self._drop_removed(prefix)

    def _drop_removed(self, prefix: str) -> None:
        if not self._storage.is_file(index_path(prefix)):
            self.drop({prefix})

    def finish_removals(self) -> bool:
        """Completes removals that were interrupted.

        Returns:
            Whether one was completed.

        Raises:
            StateFileError: The state file is malformed.
            StorageError: A file cannot be removed.
        """
        self._written = None  # the state file may change
        removed = finish_removals(self._storage, self.home, self._directory)
        self.drop(removed)
        return bool(removed)

    def put_right(self) -> None:
        """Drops checkpoints whose files are gone. One without an index of which data is left is on the list until a policy lets go of it
        and its data is removed, but `present` does not have it."""
        names = set(self._storage.list(self.home)) if self.managed else set()
        missing = {each.prefix for each in self.managed if index_path(os.path.basename(each.prefix)) not in names}
        data = {found.prefix for name in names if missing and (found := parse_data_path(name)) is not None}
        self._half_removed = frozenset(prefix for prefix in missing if os.path.basename(prefix) in data)
        self.drop(missing - self._half_removed)

    def refresh(self) -> CheckpointState | None:
        """`restorable`, from the state file as it is now. What is managed does not change."""
        if self._written is None:
            state = known_checkpoints(self._storage, self._directory)
            self._candidates = self._others_listed = ()
            if state is not None:
                self._sort_out(state)
        return self.restorable()

    def adopt(self) -> list[str]:
        """Lists checkpoints of this series that are not listed, in the order of their numbers. Errors are those of `record`."""
        self.load()
        known = {each.prefix for each in self.managed} | set(self._candidates)
        prefixes = [
            prefix for prefix in numbered(self._storage, self._stem) if prefix not in known and self.is_own(prefix)
        ]
        if prefixes:
            times = {prefix: saved for prefix in prefixes if (saved := self._modified(prefix)) is not None}
            adopted = [ManagedCheckpoint(prefix, saved) for prefix, saved in times.items()]
            # no manager has preserved any of them, however old they are
            self.last_preserved = min([self.last_preserved, *(each.timestamp - 1.0 for each in adopted)])
            self.managed = (*adopted, *self.managed)
            self._candidates = (*self._candidates, *reversed(prefixes))
            self.record(self._candidates[0])
        return prefixes

    def add(self, prefix: str) -> None:
        """Makes a checkpoint that was just saved the newest of this series."""
        others = [each for each in self.managed if each.prefix != prefix]
        self.managed = (*others, ManagedCheckpoint(prefix, time.time()))
        self._candidates = (prefix, *(each for each in self._candidates if each != prefix))

    def drop(self, paths: set[str]) -> None:
        """Drops checkpoints whose files are gone."""
        self.managed = tuple(each for each in self.managed if each.prefix not in paths)
        self._candidates = tuple(each for each in self._candidates if each not in paths)

    def record(self, latest: str) -> None:
        """Writes the state file.

        Args:
            latest: The checkpoint that becomes the latest of the directory. Of the others, those whose files are gone leave the list.

        Raises:
            StateFileError: The present state file is malformed.
            StorageError: The state file cannot be written. The present one is unchanged.
        """
        for attempt in itertools.count(1):
            present = read_to_change(self._storage, self._directory)
            self.check_alone()
            self._look_for_others()
            self.put_right()
            try:
                self._written = record_state(
                    self._directory, self._state(latest), storage=self._storage, present=present
                )
                return
            except StorageError as error:
                if error.errno != errno.EEXIST or attempt == MOST_CHANGES:
                    raise

    def check_alone(self) -> None:
        """Checks in a store that no other run has listed checkpoints of this series since this one has read the list. A disk is not looked at.

        Raises:
            StorageError: Another run has.
        """
        present = read_to_change(self._storage, self._directory)
        if present is None or present == self._written:
            return
        state = state_of(self._storage, self._directory)
        known = {*self._candidates, *(each.prefix for each in self.managed)}
        listed = [] if state is None else state.newest_first()
        unknown = [prefix for prefix in listed if self.is_own(prefix) and prefix not in known]
        if unknown:
            raise StorageError(
                "another run saves to this series at the same time, so this one stops",
                errno=errno.EEXIST,
                file=unknown[0],
                expected="only checkpoints that this run has read from the list, or has saved",
                found=f"{os.path.basename(unknown[0])}, which another run has listed",
                remedy="let only one run save to this directory, or give each a directory or name of its own",
            )

    def _state(self, latest: str) -> CheckpointState:
        preserved = self.last_preserved
        if self._others and self._others_preserved is not None:
            # Both managers share this time. The earlier time makes them preserve too many checkpoints rather than too few.
            preserved = min(preserved, self._others_preserved)
        everything = (*self._others, *self.managed)
        return CheckpointState(
            latest, tuple(each.prefix for each in everything), tuple(each.timestamp for each in everything), preserved
        )

    def _look_for_others(self) -> None:
        """Reads what other managers have listed, unless this manager wrote the state file last."""
        if self._written is not None and read_state_file(self._storage, self._directory) == self._written:
            return
        state = known_checkpoints(self._storage, self._directory)
        self._others, self._others_preserved = (), None
        if state is not None:
            own_prefixes = {checkpoint.prefix for checkpoint in self.managed}
            self._others = tuple(
                checkpoint
                for checkpoint in self._timed(state)
                if checkpoint.prefix not in own_prefixes and self._is_others(checkpoint.prefix)
            )
            self._others_preserved = state.last_preserved_timestamp

    def _is_others(self, prefix: str) -> bool:
        return is_below(self._storage, self._directory, prefix) and not is_of_series(prefix, self._stem)

    def _sort_out(self, state: CheckpointState) -> list[str]:
        """Divides the listed checkpoints by their series.

        Returns:
            Those to warn of: checkpoints outside the directory, and checkpoints that no manager can have listed.
        """
        paths = state.newest_first()
        self._candidates = tuple(filter(self.is_own, paths))
        candidates = set(self._candidates)
        self._others_listed = tuple(prefix for prefix in paths if prefix not in candidates)
        by_managers = bool(state.all_model_checkpoint_timestamps)
        return [prefix for prefix in self._others_listed if not (by_managers and self._is_others(prefix))]

    def _is_managed_by_another(self, prefix: str) -> bool:
        identity = place_of(self._storage, self._directory)
        return any(
            other is not self and place_of(other._storage, other._directory) == identity and other.is_own(prefix)
            for other in Listing._living
        )

    def _timed(self, state: CheckpointState) -> list[ManagedCheckpoint]:
        times = state.all_model_checkpoint_timestamps
        # one listing of the directory shows whether most of the checkpoints exist
        start = os.path.join(self._directory, "")
        names = (
            set() if len(times) == len(state.all_model_checkpoint_paths) else set(self._storage.list(self._directory))
        )
        checkpoints = []
        for number, prefix in enumerate(state.all_model_checkpoint_paths):
            name = index_path(prefix.removeprefix(start))
            if number < len(times):
                saved: float | None = times[number]
            else:
                saved = self._modified(prefix) if os.sep in name or name in names else None
            if saved is not None:
                checkpoints.append(ManagedCheckpoint(prefix, saved))
        return checkpoints

    def _modified(self, prefix: str) -> float | None:
        try:
            return self._storage.modified(index_path(prefix))
        except CheckpointNotFoundError:
            return None
