"""One save from its plan to its end: the commit, and what comes after it.

Until the commit point a save that fails has changed nothing. After it the checkpoint is there whatever happens, so each of the
steps that follow is taken even if an earlier one failed: the checkpoint is listed, then the user's write callbacks are called.
What failed is raised at the end, and says what holds all the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from milepost.engine.announcement import Announcement
from milepost.engine.leftovers import sweep_state_files
from milepost.engine.load import storage_of
from milepost.engine.options import CheckpointOptions
from milepost.engine.plan import SavePlan
from milepost.engine.save import execute_save
from milepost.engine.series import list_saved
from milepost.engine.state_file import STATE_FILE
from milepost.errors import AfterCommitError, MilepostError, StorageError
from milepost.graph.adapter import Array
from milepost.storage import Storage, anchored
from milepost.tensor import PiecewiseArray


class Save:
    """One save under exactly the path it is given.

    Args:
        path: The checkpoint's prefix.
        options: How to save, as `milepost.engine.options.resolved` returns it. They become the save's own.

    Attributes:
        path: As given.
        options: As given, with a storage for which the path means the same if the current directory changes.
        storage: That storage.

    Raises:
        UnsupportedError: The path is a URL or begins with ``~``, and the storage is that of this machine.
    """

    def __init__(self, path: str, options: CheckpointOptions) -> None:
        self.path = path
        self.options = options
        self.storage = self.options.storage = anchored(storage_of(options), path)
        self._callbacks = options.write_callbacks

    def run(self, plan: SavePlan, arrays: Sequence[Array | PiecewiseArray]) -> None:
        """Writes and commits; then does what comes after.

        Raises:
            StorageError: The files could not be written; what was there before still is.
            AfterCommitError: The checkpoint is saved and can be restored; what failed comes after that.
        """
        problems = self._commit(plan, arrays)
        for call in self._callbacks:
            try:
                call(self.path)
            except Exception as error:
                error.add_note(f"The checkpoint {self.path} is saved; a write callback failed after that.")
                problems.append(error)
        if problems:
            for other in problems[1:]:
                problems[0].add_note(f"After that: {type(other).__name__}: {other}")
            raise problems[0]

    def _commit(self, plan: SavePlan, arrays: Sequence[Array | PiecewiseArray]) -> list[Exception]:
        try:
            execute_save(plan, arrays, self.storage, self.path, self.options)
        except AfterCommitError as error:
            return [error]
        return []


class ListedSave(Save):
    """One save that the state file of its directory is to name.

    Args:
        path: The checkpoint's prefix.
        options: As for `Save`.
        record: Lists the checkpoint: called with the storage, the path, and whether the checkpoint is durable.

    Attributes:
        is_committed: Whether the checkpoint is there, so that its number is used.
        committed: Called once it is.
    """

    def __init__(self, path: str, options: CheckpointOptions, record: Callable[[Storage, str, bool], object]) -> None:
        super().__init__(path, options)
        self._record = record
        self.is_committed = False
        self.committed: Callable[[], object] = lambda: None

    def _commit(self, plan: SavePlan, arrays: Sequence[Array | PiecewiseArray]) -> list[Exception]:
        storage, announcement = self.storage, Announcement()
        problems: list[Exception] = []
        interrupt: BaseException | None = None
        try:
            try:
                execute_save(plan, arrays, storage, self.path, self.options, announcement)
            except BaseException as error:
                if not announcement.is_committed():
                    announcement.withdraw()
                    raise
                if not isinstance(error, Exception):
                    interrupt = error
                problems.append(error if isinstance(error, AfterCommitError) else self._committed_all_the_same(error))
            self.is_committed = True
            self.committed()
            try:
                self._record(storage, self.path, not problems)
            except MilepostError as error:
                unlisted = self._unlisted(error)
                unlisted.__cause__ = error
                problems.append(unlisted)
            else:
                announcement.withdraw()
        finally:
            announcement.leave()
        if interrupt is not None:
            raise interrupt
        return problems

    def _committed_all_the_same(self, error: BaseException) -> AfterCommitError:
        committed = AfterCommitError(
            f"the checkpoint is saved, but a power cut may lose it: {getattr(error, 'problem', error)}",
            errno=getattr(error, "errno", None),
            file=self.path,
            remedy="check the disk; the next save to this directory makes this checkpoint durable too",
        )
        committed.__cause__ = error
        return committed

    def _unlisted(self, error: MilepostError) -> AfterCommitError:
        return AfterCommitError(
            f"the checkpoint is saved, but it could not be listed in the state file of its directory: {error.problem}",
            errno=getattr(error, "errno", None),
            key=self.path,
            file=error.file or os.path.join(os.path.dirname(self.path), STATE_FILE),
            remedy=(error.remedy + "; " if error.remedy else "") + "the next save or the next run lists it",
        )


def record_latest(storage: Storage, path: str, durable: bool) -> None:
    """Makes a checkpoint the latest of its directory, as `Checkpoint.save` does, which deletes nothing."""
    list_saved(storage, path)
    with suppress(StorageError):  # The next save, or the next manager, tries again.
        sweep_state_files(storage, os.path.join(os.path.dirname(path), STATE_FILE))
