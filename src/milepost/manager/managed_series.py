"""The state of a manager: its series of checkpoints, the listing and metadata of these, and when the last save was."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from milepost.bundle import open_whole
from milepost.bundle.format.names import find_prefixes, index_path
from milepost.checkpoint.checkpoint import Checkpoint
from milepost.engine.options import CheckpointOptions, resolved, storage_of
from milepost.errors import CheckpointNotFoundError, MilepostError, StorageError, UnsupportedError
from milepost.forks import ForkableLock
from milepost.graph.description import counted, metrics_text
from milepost.manager.agreement import Agreed
from milepost.manager.committed import OnCommitted
from milepost.manager.finite_policy import KeepLastFinite
from milepost.manager.health import GoodSave, SaveRecord
from milepost.manager.listing import Listing
from milepost.manager.saved_metadata import SavedMetadata
from milepost.manager.signals.termination import TerminationSignal
from milepost.manager.tolerance import Tolerate
from milepost.manager.triggers import Triggers
from milepost.manager.whole_numbers import whole_number
from milepost.retention import ManagedCheckpoint
from milepost.retention.rules import RetentionPolicy
from milepost.series.files import read_files
from milepost.series.metadata import Metadata
from milepost.series.pins import pinned_in
from milepost.series.series import numbered, split_number
from milepost.storage import Storage
from milepost.storage.default import anchored
from milepost.storage.paths import plain_path

_MOST_LISTED: Final = 10
ReadT = TypeVar("ReadT")


class ManagedSeries:
    """The series of checkpoints of one manager. All parts of the manager share this object.

    Args:
        checkpoint: The `Checkpoint` that is saved and restored.
        directory: The directory of the state file.
        name: The first part of the files' names.
        policy: Which checkpoints to keep.
        triggers: When a save is due.
        step_counter: The variable that counts training steps, or None.
        options: How to save and restore, or None.
        finite: Which values make a checkpoint one that is not finite; None if none is looked at.

    Attributes:
        infinite: The names of the values in which infinity does not count, because the first checkpoint of the run had it; None if that is not
            known yet.
        prefix: The path of the checkpoints without ``-<number>``.
        storage: Where the files are.
        listing: The checkpoints that the state file lists.
        lock: Held while ``listing``, ``metadata``, ``latest`` or ``must_look`` changes.
        metadata: The metrics and metadata that were saved with the checkpoints.
        latest: The newest good checkpoint, or None. It is out of date while ``must_look`` is true.
        must_look: Whether the newest good checkpoint must be searched for again.
        asked: The step at which `should_save` was last called.
        saved_step: The step of the last save.
        agreed_at: A step, and the facts on which all processes agreed there.
        signal: Catches SIGTERM; None without ``on_sigterm``.
        record: How the saves of the manager have ended.
        on_committed: A function that is told of each checkpoint that is saved, or None.
        tolerate: Which failed saves the run goes on through; None if every error is raised.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        directory: str,
        name: str | os.PathLike[str],
        policy: RetentionPolicy,
        triggers: Triggers,
        step_counter: Any,
        options: CheckpointOptions | None,
        finite: KeepLastFinite | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.directory = directory
        self.prefix = os.path.join(directory, name)
        self.policy = policy
        self.triggers = triggers
        self.step_counter = step_counter
        self.options = options
        # The series stays in one place, even if the current directory changes.
        self.storage: Storage = anchored(storage_of(resolved(options)), directory)
        self.lock = ForkableLock()
        self.listing = Listing(
            self.storage, directory, self.prefix, holds_old=policy.keep is not None or finite is not None
        )
        self.metadata = SavedMetadata(self.storage)
        self.latest: str | None = None
        self.must_look = True
        self.asked: int | None = None
        self.saved_step: int | None = None
        self.agreed_at: tuple[int, Agreed] | None = None
        self.signal: TerminationSignal | None = None
        self.record = SaveRecord()
        self.tolerate: Tolerate | None = None
        self.on_committed: OnCommitted | None = None
        self.finite = finite
        self.infinite: frozenset[str] | None = None

    def with_options(self, options: CheckpointOptions | None) -> CheckpointOptions:
        """Options of the program, or those of the manager, with the storage of the series."""
        options = resolved(options or self.options)
        options.storage = options.storage or self.storage
        return options

    def path_of(self, step: Any) -> str:
        """The path of the checkpoint with a number."""
        if isinstance(step, (str, bytes, os.PathLike)) and (of_path := split_number(plain_path(step))):
            raise UnsupportedError(
                "this is the path of a checkpoint; a manager takes numbers",
                expected="an integer, or a variable, array or tensor that holds one",
                found=f"{step!r:.80}",
                remedy=f"pass the number, {of_path[1]}; Checkpoint.restore() takes a path",
            )
        number = whole_number(step)
        if number < 0:
            raise UnsupportedError(
                "the number of a checkpoint cannot be negative",
                expected="0 or more",
                found=number,
                remedy="pass the number of a checkpoint; latest_step is that of the newest",
            )
        return f"{self.prefix}-{number}"

    def saved_with(self, step: Any) -> Metadata:
        """The metrics and metadata of the checkpoint with a number."""
        return self._read(step, self.metadata.of)

    def files_of(self, step: Any) -> dict[str, bytes]:
        """The files that were saved with the checkpoint with a number."""

        def read(prefix: str) -> dict[str, bytes]:
            with open_whole(self.storage, prefix) as reader:
                return read_files(reader)

        return self._read(step, read)

    def _read(self, step: Any, read: Callable[[str], ReadT]) -> ReadT:
        """Reads from the checkpoint with a number, if there is one."""
        prefix = self.path_of(step)
        try:
            return read(prefix)
        except CheckpointNotFoundError as error:
            if self.storage.is_file(index_path(prefix)):
                raise  # a data file is missing
            raise self.no_such(prefix) from error

    def metrics_text(self, checkpoint: ManagedCheckpoint) -> str:
        """The metrics of a checkpoint on one line; empty if there are none, or if they cannot be read."""
        try:
            return metrics_text(self.metadata.metrics_of(checkpoint.prefix) or {})
        except MilepostError:
            return ""

    def facts(self, *, metrics: bool) -> tuple[ManagedCheckpoint, ...]:
        """The managed checkpoints, with the facts that policies decide by.

        Args:
            metrics: Whether to read the metrics of each.
        """
        pinned, nonfinite = pinned_in(self.storage, self.listing.home), self._newer_than_finite()
        return tuple(
            dataclasses.replace(
                checkpoint,
                metrics=self.metadata.metrics_of(checkpoint.prefix) if metrics else None,
                pinned=checkpoint.prefix in pinned,
                nonfinite=checkpoint.prefix in nonfinite,
            )
            for checkpoint in self.listing.managed
        )

    def last_finite_step(self) -> int | None:
        """The number of the last managed checkpoint that is not marked as not finite, or None."""
        nonfinite = self._newer_than_finite()
        return next((each.step for each in reversed(self.listing.present) if each.prefix not in nonfinite), None)

    def _newer_than_finite(self) -> set[str]:
        """The managed checkpoints that are newer than the last finite one: those that are marked, damaged or missing."""
        newer = set()
        for checkpoint in reversed(self.listing.managed):
            if self.metadata.nonfinite(checkpoint.prefix) == ():
                break
            newer.add(checkpoint.prefix)
        return newer

    def set_latest(self, prefix: str | None) -> None:
        """Records which checkpoint is the newest good one. The caller holds ``lock``."""
        self.latest, self.must_look = prefix, False

    def note_saved(self, step: int) -> None:
        """Records that a training step is saved, from which the next save is counted."""
        self.saved_step = step
        self.triggers.saved(step)

    def note_tried(self, step: int) -> None:
        """Records that a save at a training step has failed. The next one is due as if it had not."""
        self.triggers.saved(step)

    @property
    def last_good(self) -> GoodSave | None:
        """The last good save; before the first save of this manager, the newest checkpoint that is listed."""
        good, listed = self.record.last_good, self.listing.present
        if good is None and listed:
            newest = listed[-1]
            return GoodSave(newest.prefix, newest.step, datetime.fromtimestamp(newest.timestamp, UTC))
        return good

    def no_such(self, prefix: str) -> CheckpointNotFoundError:
        """The error for a checkpoint that is not there. It names the numbers of those that are, managed or not."""
        try:
            existing = [split_number(each) for each in numbered(self.storage, self.prefix)]
            others = find_prefixes(self.storage, self.listing.home)
        except StorageError:  # the directory cannot be read, so the error says what is known
            existing, others = [split_number(each.prefix) for each in self.listing.present], []
        steps = [split[1] for split in existing if split is not None]
        if steps:
            last = ", ".join(map(str, steps[-_MOST_LISTED:]))
            found = (
                counted(len(steps), "checkpoint")
                + (", the last of them " if len(steps) > _MOST_LISTED else ": ")
                + last
            )
            remedy = f"pass {'this number' if len(steps) == 1 else 'one of these numbers'}"
        elif others:
            found = ", ".join(map(os.path.basename, others[-_MOST_LISTED:]))
            remedy = "make the manager with the checkpoint_name of these checkpoints, which is what precedes -<number>"
        else:
            found, remedy = (
                "none",
                "check the directory; the numbers are those of the checkpoints that were saved there",
            )
        is_listed = prefix in (each.prefix for each in self.listing.present)
        return CheckpointNotFoundError(
            "the checkpoint with this number is listed, but its files are missing"
            if is_listed
            else "there is no checkpoint with this number",
            file=prefix,
            expected="the number of a checkpoint of this series",
            found=found,
            remedy=f"copy the files back, or {remedy}" if is_listed else remedy,
        )
