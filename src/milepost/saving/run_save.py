"""One save from its plan to its end: the commit, and what comes after it.

Until the commit point, a save that fails has changed nothing. After it, the checkpoint exists whatever happens. So all later
steps are carried out even if one of them fails: the checkpoint is listed, then the user's write callbacks are called. The
error is raised at the end, and says that the checkpoint is saved.
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from milepost.bundle.counting import counted_by
from milepost.collector import QUICK, collection_paused
from milepost.distributed.find import is_alone, rounds_of
from milepost.engine.options import CheckpointOptions, storage_of
from milepost.engine.plan import SavePlan
from milepost.engine.progress import array_sizes, reporting
from milepost.engine.turns import SAVE, Turn
from milepost.engine.watching import watchers
from milepost.errors import AfterCommitError, MilepostError, StorageError, UnsupportedError, importing, printable
from milepost.graph.adapter import Array
from milepost.graph.contract.operation import Operation
from milepost.logs import heard, seconds_since
from milepost.saving.examination import Examined, examined, examined_share, joined
from milepost.saving.files import with_files
from milepost.saving.save import Member, execute_save, plan_save, read_state
from milepost.saving.snapshot import SnapshotMemory
from milepost.series.announcement import Announcement
from milepost.series.commit import BeforeCommit, not_durable
from milepost.series.leftovers import sweep_state_files
from milepost.series.series import list_saved
from milepost.series.state_file import STATE_FILE
from milepost.storage import Storage
from milepost.storage.checked import conditional
from milepost.storage.default import anchored
from milepost.tensor import PiecewiseArray

if TYPE_CHECKING:  # a process that saves alone imports neither
    from milepost.distributed.rounds import Rounds
    from milepost.saving.distributed_plan import SharePlan


class Save:
    """One save under exactly the prefix it is given.

    Args:
        prefix: The checkpoint's prefix.
        options: How to save, as `milepost.engine.options.resolved` returns it. They become the save's own.

    Attributes:
        prefix: As given.
        options: As given, with a storage for which the prefix means the same if the current directory changes.
        storage: That storage.
        leads: Whether this process decides: it saves alone, or it is process 0 of several.
        is_committed: Whether the checkpoint is there.
        is_quick: Whether writing takes so little time that the garbage collector can pause meanwhile.
        metadata: The metadata to save, as `milepost.series.metadata.encode` returns it. With several processes, that of
            process 0.
        files: The bytes of the files to save, by name. With several processes, process 0 has some.
        counts: Whether a value of a name counts that is not finite; None if no value is looked at.
        turn: The turn of this save. It ends when the live values are no longer needed.
        hangs_after: Seconds after which a save in the background that has written nothing hangs; None if it is waited for without a limit.

    Raises:
        UnsupportedError: The prefix is a URL of a scheme that milepost does not know, or begins with ``~``, and the storage is that of this machine. Or
            several processes save together to an object store.
    """

    def __init__(self, prefix: str, options: CheckpointOptions) -> None:
        self.prefix = prefix
        self.options = options
        self.storage = self.options.storage = anchored(storage_of(options), prefix)
        self._callbacks = options.experimental_write_callbacks or ()
        if conditional(self.storage, prefix) is not None and not is_alone(options):
            raise UnsupportedError(
                "several processes cannot save together to an object store yet",
                file=prefix,
                expected="a path of a file system that all processes see",
                found="an object store",
                remedy="save to a shared file system and copy the checkpoint, or let each process save alone, with "
                "CheckpointOptions(process_local=True) and a path of its own",
            )
        self._rounds = rounds_of(options, f"save {prefix}")
        self.leads = self._rounds is None or self._rounds.leads
        self.is_committed = False
        self.is_quick = False
        self._started = time.monotonic()
        self.metadata: bytes | None = None
        self.files: Mapping[str, bytes] = {}
        self.turn: Turn | None = None
        self.hangs_after: float | None = None
        self.counts: Callable[[str], bool] | None = None
        self._moved_at = self._started
        self._plan: SavePlan | SharePlan | None = None
        self._arrays: Sequence[Array | PiecewiseArray] = ()

    @contextmanager
    def together(self) -> Iterator[None]:
        """If this process fails while it prepares the save, the save fails on all processes."""
        try:
            yield
        except BaseException as error:
            if self._rounds is not None:
                self._rounds.fail(error)
            raise

    def begin(self, view: Callable[[], Operation]) -> Turn:
        """The block in which the live values are read, which waits for other threads that save or restore the same objects.

        Args:
            view: Begins an operation at the root of the objects.
        """
        self.turn = Turn(SAVE, f"the save of {self.prefix}", view, self.options.process_timeout)
        return self.turn

    def read(self, operation: Operation) -> None:
        """Reads the live objects and plans what this process writes; errors are those of `milepost.saving.save.read_state`."""
        if self._rounds is None:
            plan, arrays = plan_save(operation, self.options)
            self._plan, self._arrays = with_files(plan, arrays, self.files)
        else:
            with importing():
                from milepost.distributed.digests import digests_together  # a process that saves alone needs neither
                from milepost.saving.distributed_plan import plan_share

            member = Member(self._rounds.rank, self._rounds.size)
            state = read_state(operation, self.options, member)
            if state.of_base:
                state = state.with_digests(digests_together(state.of_base, self._rounds))
            share, arrays = plan_share(state, member, self.options)
            self._plan, self._arrays = with_files(share, arrays, self.files)
        self.is_quick = sum([array.nbytes for array in self._arrays]) <= QUICK
        for watcher in watchers:
            watcher.reading(self.prefix, operation, None if self._rounds is None else self._rounds.rank)

    def copy(self, memory: SnapshotMemory) -> None:
        """Copies the values to be written, so that training may continue meanwhile.

        Args:
            memory: The memory for the copies. It is in use until the save has ended.
        """
        self._arrays = memory.copy(self._arrays)

    def hanging(self, since: float = 0.0) -> StorageError | None:
        """The error for a save that has written nothing for `hangs_after` seconds; None if it has. Other processes count, too: if one of them
        shows progress, this process waits for it.

        Args:
            since: When these seconds begin at the earliest, as `time.monotonic` gives it.
        """
        limit = self.hangs_after or math.inf
        moved_at = max(self._moved_at, since)
        if self._rounds is not None:
            limit = max(limit, 2 * self.options.process_timeout)
            moved_at = max(moved_at, self._rounds.moved_at)
        seconds = time.monotonic() - moved_at
        if seconds < limit:
            return None
        return StorageError(
            f"the save of {self.prefix} hangs: it has written nothing for {seconds:.1f} seconds",
            errno=errno.ETIMEDOUT,
            file=self.prefix,
            expected=f"progress within {limit:g} seconds",
            remedy="check whether the storage answers; if it is only slow, pass a larger hangs_after to milepost.Tolerate",
        )

    def _moved(self, _: int) -> None:
        self._moved_at = time.monotonic()

    def run(self) -> None:
        """Writes and commits the checkpoint, and then carries out the later steps.

        Raises:
            StorageError: The files cannot be written. Existing files are unchanged.
            AfterCommitError: The checkpoint is saved and can be restored, but a later step failed.
        """
        self._moved_at = time.monotonic()
        with counted_by(self._moved) if self.hangs_after else nullcontext():
            self._run()

    def _run(self) -> None:
        rounds, log = self._rounds, heard()
        count, size = len(self._arrays) - len(self.files), sum(array_sizes(self._arrays)) if log is not None else 0
        with (
            collection_paused() if self.is_quick else nullcontext(),
            reporting(self.options.progress, "save", self.prefix, leads=self.leads) as progress,
        ):
            if progress is not None:
                progress.begin(array_sizes(self._arrays))
            with nullcontext() if progress is None else progress.stage():
                problems = self._commit() if rounds is None else self._commit_together(rounds)
            self._plan, self._arrays = None, ()
            if self.turn is not None:
                self.turn.end()
            if progress is not None and not problems:
                progress.finish()
        for call in self._callbacks:
            try:
                call(self.prefix)
            except Exception as error:
                error.add_note(f"The checkpoint {self.prefix} is saved. A write callback failed after that.")
                problems.append(error)
        if log is not None:
            path = printable(self.prefix, one_line=True)
            log.info("saved %s: %d values, %d bytes, %s", path, count, size, seconds_since(self._started))
        for watcher in watchers:
            watcher.saved(self.prefix)
        if problems:
            for other in problems[1:]:
                problems[0].add_note(f"After that: {type(other).__name__}: {other}")
            raise problems[0]

    def _commit_together(self, rounds: Rounds) -> list[Exception]:
        """Commits, and tells all processes the outcome."""
        with importing():
            from milepost.distributed.problems import facts_of  # as in read()
            from milepost.distributed.rounds import Message

        problems: list[Exception] = []
        try:
            problems = self._commit() if rounds.leads else self._commit_as_other(rounds)
        except BaseException as error:
            if self.is_committed and rounds.leads:
                why = facts_of(error)["problem"]
                rounds.conclude(Message({"problems": [f"the checkpoint is saved; process 0 failed after that: {why}"]}))
            rounds.fail(error)
            raise
        if rounds.leads:
            rounds.conclude(Message({"problems": [str(getattr(each, "problem", each)) for each in problems]}))
        return problems

    def _commit_as_other(self, rounds: Rounds) -> list[Exception]:
        with importing():
            from milepost.saving.distributed_plan import SharePlan  # as in read()
            from milepost.saving.distributed_save import divide_share, save_as_other

        try:
            assert isinstance(self._plan, SharePlan), "read() comes before run()"
            arguments = self._arrays, self.storage, self.prefix, self.options
            found = self._examine()
            with divide_share(rounds, self._plan, *arguments) as division:
                problems: list[Exception] = [*save_as_other(rounds, self._plan, division, *arguments, found)]
        except AfterCommitError as error:
            problems = [error]
        rounds.end()
        return [*problems, *self._was_committed()]

    def _commit(self) -> list[Exception]:
        problems: list[Exception] = []
        try:
            self._write()
        except AfterCommitError as error:
            problems.append(error)
        self.is_committed = True
        return problems

    def _write(self, before_commit: BeforeCommit | None = None) -> None:
        """Writes and commits the files."""
        if self._rounds is not None:
            with importing():
                from milepost.saving.distributed_plan import SharePlan  # as in read()
                from milepost.saving.distributed_save import divide_share, save_as_first

            assert isinstance(self._plan, SharePlan), "read() comes before run()"
            arguments = self._arrays, self.storage, self.prefix, self.options
            found = self._examine()
            with divide_share(self._rounds, self._plan, *arguments) as division:
                save_as_first(self._rounds, self._plan, division, *arguments, before_commit, self._complete, found)
            return
        metadata = self._complete([self._examine()])
        execute_save(self._taken_plan(), self._arrays, self.storage, self.prefix, self.options, before_commit, metadata)

    def _examine(self) -> Examined | None:
        """Looks at the values that this process writes. Returns None if the save does not."""
        plan = self._plan
        if self.counts is None or plan is None:
            return None
        if isinstance(plan, SavePlan):
            return examined(plan.graph, plan.writes, self._arrays, self.counts, self._moved)
        assert self._rounds is not None, "a share is that of one of several processes"
        with self._rounds.working(time.monotonic):
            return examined_share(plan, self._arrays, self.counts, self._moved)

    def _complete(self, found: Sequence[Sequence[Sequence[str]] | None]) -> bytes | None:
        """The metadata to save, when all values were looked at.

        Args:
            found: What each process has found, as `Examined`.
        """
        if self.counts is not None:
            self.metadata = self.marked(joined([each for each in found if each is not None]))
        return self.metadata

    def marked(self, found: Examined) -> bytes | None:
        """The metadata of a save that has looked at its values."""
        return self.metadata

    def _taken_plan(self) -> SavePlan:
        """The plan, which this save no longer refers to."""
        plan, self._plan = self._plan, None
        assert isinstance(plan, SavePlan), "read() comes before run()"
        return plan

    def _was_committed(self) -> list[Exception]:
        """Called on the other processes once process 0 has committed; returns what failed."""
        self.is_committed = True
        return []


class ListedSave(Save):
    """One save that is listed in the state file of its directory.

    Args:
        prefix: The checkpoint's prefix.
        options: As for `Save`.
        record: Lists the checkpoint: called with the storage, the prefix, and whether the checkpoint is durable. With
            several processes, only process 0 calls it.

    Attributes:
        check: A function that is called right before the commit point, when no other process can save the same
            checkpoint. If it raises an error, the save ends with that error. With several processes, only process 0
            calls it.
        check_alone: As `check`: it raises an error if another run has saved to the series.
        committed: A function that is called when the checkpoint is visible, so that its number is used.
        listed_elsewhere: A function that is called on the other processes when process 0 has listed the checkpoint.
    """

    def __init__(self, prefix: str, options: CheckpointOptions, record: Callable[[Storage, str, bool], object]) -> None:
        super().__init__(prefix, options)
        self._record = record
        self.check: Callable[[], object] = lambda: None
        self.check_alone: Callable[[], object] = lambda: None
        self.committed: Callable[[], object] = lambda: None
        self.listed_elsewhere: Callable[[], object] = lambda: None

    def _was_committed(self) -> list[Exception]:
        problems = super()._was_committed()
        self.committed()
        try:
            self.listed_elsewhere()
        except MilepostError as error:
            unread = AfterCommitError(
                f"the checkpoint is saved, but this process could not read the state file that lists it: {error.problem}",
                errno=getattr(error, "errno", None),
                key=self.prefix,
                file=error.file,
                remedy=(error.remedy + "; " if error.remedy else "") + "the next save on all processes reads it again",
            )
            unread.__cause__ = error
            problems.append(unread)
        return problems

    def _commit(self) -> list[Exception]:
        storage, announcement = self.storage, Announcement()

        def announce(token: str, index: bytes) -> None:
            self.check()
            self.check_alone()
            announcement.make(storage, self.prefix, token, index)

        problems: list[Exception] = []
        interrupt: BaseException | None = None
        is_listed = False
        try:
            try:
                self._write(BeforeCommit(announce, announcement.begin_commit))
            except BaseException as error:
                is_committed = announcement.is_committed()
                if is_committed is False:
                    announcement.withdraw()
                    raise
                if not isinstance(error, Exception):
                    interrupt = error
                if isinstance(error, AfterCommitError):
                    problems.append(error)
                else:
                    problems.append(
                        self._committed_all_the_same(error) if is_committed else self._perhaps_committed(error)
                    )
            is_listed = self._listed(problems, announcement)
        finally:
            if not is_listed and announcement.is_committed():
                # Ctrl-C has come. Otherwise no later save of this process would list the checkpoint.
                self._listed(problems, announcement)
            announcement.leave()
        if interrupt is not None:
            raise interrupt
        return problems

    def _listed(self, problems: list[Exception], announcement: Announcement) -> bool:
        """Lists the checkpoint, which may fail, and withdraws its announcement. Returns True when that is done."""
        self.is_committed = True
        self.committed()
        try:
            self._record(self.storage, self.prefix, not problems)
        except MilepostError as error:
            unlisted = self._unlisted(error)
            unlisted.__cause__ = error
            problems.append(unlisted)
        else:
            announcement.withdraw()
        return True

    def _committed_all_the_same(self, error: BaseException) -> AfterCommitError:
        committed = not_durable(self.prefix, error)
        committed.__cause__ = error
        return committed

    def _perhaps_committed(self, error: BaseException) -> AfterCommitError:
        unknown = AfterCommitError(
            f"the checkpoint may be saved or not, because the disk does not tell: {getattr(error, 'problem', error)}",
            errno=getattr(error, "errno", None),
            file=self.prefix,
            remedy="check the disk; the next run lists the checkpoint if it is there",
        )
        unknown.__cause__ = error
        return unknown

    def _unlisted(self, error: MilepostError) -> AfterCommitError:
        return AfterCommitError(
            f"the checkpoint is saved, but it could not be listed in the state file of its directory: {error.problem}",
            errno=getattr(error, "errno", None),
            key=self.prefix,
            file=error.file or os.path.join(os.path.dirname(self.prefix), STATE_FILE),
            remedy=(error.remedy + "; " if error.remedy else "") + "the next save or the next run lists it",
        )


def record_latest(storage: Storage, prefix: str, durable: bool) -> None:
    """Makes a checkpoint the latest of its directory, as `Checkpoint.save` does. No checkpoint is deleted."""
    list_saved(storage, prefix)
    with suppress(StorageError):  # the next save or the next manager tries again
        sweep_state_files(storage, os.path.join(os.path.dirname(prefix), STATE_FILE))
