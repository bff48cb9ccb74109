"""The methods by which a program says that its run is complete, and asks whether it is."""

from __future__ import annotations

import abc

from milepost.distributed.find import is_first
from milepost.errors import CheckpointNotFoundError, warn
from milepost.manager.managed_series import ManagedSeries
from milepost.series.completion import is_complete_with, note_completion
from milepost.series.state_file import state_of


class Completion(abc.ABC):
    """Notes in the directory that the run is complete."""

    @property
    @abc.abstractmethod
    def _series(self) -> ManagedSeries:
        """The series."""

    @abc.abstractmethod
    def sync(self) -> None:
        """Waits for the asynchronous save in progress, if any, and raises its error."""

    def complete(self) -> None:
        """Notes that the run is complete with its newest checkpoint, for `is_complete` and ``milepost status``.

        A program calls this last, when it has saved the last step and written all its results. The note is durable when this returns. It no
        longer counts when a later checkpoint is saved. With several processes, process 0 writes it, and the others do nothing.

        Raises:
            CheckpointNotFoundError: The series has no checkpoint.
            StorageError: The note cannot be written.

        Example:
            >>> import milepost, tempfile
            >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
            >>> manager = milepost.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=2)
            >>> path = manager.save(1)
            >>> manager.is_complete
            False
            >>> manager.complete()
            >>> manager.is_complete
            True
        """
        self.sync()
        series = self._series
        if series.asked is not None and series.asked != series.saved_step:
            warn(f"the run ends with step {series.asked}, which is not saved: save it before complete()")
        if not is_first(series.with_options(None)):
            return
        newest = self._newest_listed()
        if newest is None:
            raise CheckpointNotFoundError(
                "the run cannot be complete, because nothing is saved",
                file=series.directory,
                expected="a checkpoint of the end of the run",
                found="none",
                remedy="call save() before complete()",
            )
        note_completion(series.storage, newest)

    @property
    def is_complete(self) -> bool:
        """Whether a program has called `complete` after the newest checkpoint was saved. The directory is looked at each time."""
        newest = self._newest_listed()
        return newest is not None and is_complete_with(self._series.storage, newest)

    def _newest_listed(self) -> str | None:
        """The newest checkpoint of the series in the state file, which another manager may have written."""
        series = self._series
        state = state_of(series.storage, series.directory)
        paths = [] if state is None else [*state.all_model_checkpoint_paths, state.model_checkpoint_path]
        own = [path for path in paths if series.listing.is_own(path)]
        return own[-1] if own else None
