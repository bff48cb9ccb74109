"""`CheckpointManager`: numbers checkpoints, records them in the state file, and removes old ones.

The order of a save: the new checkpoint becomes durable; the state file that lists it becomes durable; old checkpoints
are removed, index before data; the state file no longer lists them. So after a crash at any point, the state file lists
a good checkpoint, and every checkpoint that should have been removed. A process may be killed when a checkpoint is
saved but not listed yet. Each save is announced beforehand (`milepost.engine.announcement`), so the next manager lists
that checkpoint. A pin is a file of its own (`milepost.engine.pins`), which every removal looks for.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic

from milepost.bundle import index_path
from milepost.checkpoint import Checkpoint
from milepost.checkpoint.checkpoint import exclusive, write_numbered
from milepost.checkpoint.tracing import as_written, refuse_if_traced
from milepost.engine.directory import Verification, newest_good, skipped_message
from milepost.engine.leftovers import sweep_leftovers
from milepost.engine.metadata import encode
from milepost.engine.options import CheckpointOptions
from milepost.engine.pins import removal
from milepost.engine.removal import finish_removals, is_left, remove_bundles
from milepost.engine.run_save import ListedSave
from milepost.engine.saved_model import is_saved_model
from milepost.engine.series import list_announced, numbered, split_number
from milepost.engine.state_file import STATE_FILE, CheckpointState, PathLike
from milepost.engine.status import LoadStatus
from milepost.engine.together import error_of, facts_of, first_decides, is_first
from milepost.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    MilepostError,
    SkippedCheckpointWarning,
    StorageError,
    UnsupportedError,
    UntrackableError,
    warn,
)
from milepost.graph.description import counted, of_file, shortened
from milepost.graph.remedies import forgotten_init
from milepost.manager.arguments import check_arguments, check_times
from milepost.manager.by_step import ByStep
from milepost.manager.managed_series import ManagedSeries
from milepost.manager.termination import TerminationSignal
from milepost.manager.triggers import Triggers
from milepost.manager.whole_numbers import whole_number
from milepost.retention import Policy
from milepost.retention.rules import RetentionPolicy
from milepost.storage.paths import check_local, plain_path

if TYPE_CHECKING:
    from typing_extensions import (
        TypeVar,
    )  # for type checkers; a `CheckpointManager` without brackets has any Checkpoint

    CheckpointT = TypeVar("CheckpointT", bound=Checkpoint, default=Checkpoint, covariant=True)
else:
    from typing import TypeVar

    CheckpointT = TypeVar("CheckpointT")


class CheckpointManager(ByStep, Generic[CheckpointT]):
    """Keeps a series of checkpoints in a directory: numbers them, lists them in a state file, and deletes old ones.

    Arguments, files and rules are those of ``tf.train.CheckpointManager``, and each of the two can continue the other's
    series. In addition, this manager skips damaged and missing checkpoints and restores the newest good one. When it is
    made, it removes the temporary files of crashed saves and lists checkpoints that a killed process had saved.

    The manager restores, keeps and removes only checkpoints ``<directory>/<checkpoint_name>-<number>`` that the state
    file lists. Several managers with different names can share a directory. A listed checkpoint elsewhere, or with
    another name, is restored only if the manager has no checkpoint of its own, and is never removed.

    If a run has restored nothing from a directory that has checkpoints of this name, its first save raises
    `CheckpointExistsError`.

    Args:
        checkpoint: The `Checkpoint` to save and restore.
        directory: The directory of the checkpoints and their state file. It is made by the first save.
        max_to_keep: How many of the newest checkpoints to keep, or None to keep all.
        keep_checkpoint_every_n_hours: Hours. Of the checkpoints that would be deleted, one is preserved for each such
            period.
        checkpoint_name: The first part of the files' names.
        step_counter: A variable with the training step. It has no effect without ``checkpoint_interval``.
        checkpoint_interval: Steps. `save` does nothing if fewer have passed since the last save. Needs
            ``step_counter``.
        init_fn: A function that `restore_or_initialize` calls if there is no checkpoint.
        last_checkpoint_step: The step of the last save. It has no effect without ``checkpoint_interval``.
        options: Options for all saves and restores for which no others are given. They also say where the directory is.
        keep: Which checkpoints to keep beside the newest ``max_to_keep``: policies of `milepost.retention`, such as
            ``Best(3, by="loss", mode="min") | EverySteps(10_000)``. With ``max_to_keep=None`` it decides alone. The newest and all
            pinned checkpoints are always kept.
        every_steps: Steps. `should_save` is true at each multiple.
        every_seconds: Seconds. `should_save` is true when so many have passed since the last save.
        on_sigterm: Whether to catch SIGTERM, from now until `close` or the end of the ``with`` block. `should_save` and
            `reached_preemption` are true then. A second signal gets the previous handler, which by default ends the process.
            Works only in the main thread.
        verify: How to verify a checkpoint of an earlier run before it is used. ``"checksums"`` reads all data,
            ``"files"`` reads the index and the sizes of the data files, ``"none"`` only looks whether the checkpoint
            exists.

    Raises:
        ValueError: ``max_to_keep`` or an interval is not positive, or ``checkpoint_interval`` is given without ``step_counter``.
        UnsupportedError: An argument has a type or value that is not accepted.
        UntrackableError: ``checkpoint`` is not a `Checkpoint`.
        StateFileError: The state file of the directory is malformed.
        StorageError: The directory cannot be read.

    Example:
        >>> import milepost, tempfile
        >>> directory = tempfile.mkdtemp()
        >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
        >>> manager = CheckpointManager(checkpoint, directory, max_to_keep=2)
        >>> manager.restore_or_initialize() is None
        True
        >>> paths = [manager.save() for _ in range(3)]
        >>> manager.checkpoints == paths[1:]
        True
        >>> manager.latest_checkpoint == directory + "/ckpt-3"
        True

        The best checkpoints are kept beside the newest:

        >>> from milepost.retention import Best
        >>> manager = CheckpointManager(checkpoint, tempfile.mkdtemp(), 1, keep=Best(2, by="loss", mode="min"))
        >>> for step, loss in enumerate([0.9, 0.2, 0.5, 0.4, 0.7]):
        ...     path = manager.save(step, metrics={"loss": loss})
        >>> manager.steps, manager.best_step()
        ([1, 3, 4], 1)
    """

    def __init__(
        self,
        checkpoint: CheckpointT,
        directory: PathLike,
        max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
        step_counter: Any = None,
        checkpoint_interval: int | None = None,
        init_fn: Callable[[], object] | None = None,
        last_checkpoint_step: int | None = None,
        *,
        options: CheckpointOptions | None = None,
        verify: Verification = "checksums",
        keep: Policy | None = None,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        on_sigterm: bool = False,
    ) -> None:
        if checkpoint_interval is not None and step_counter is None:
            raise ValueError("checkpoint_interval needs a step_counter: pass the variable that counts training steps")
        if not isinstance(checkpoint, Checkpoint):
            is_swapped = isinstance(directory, Checkpoint)
            raise UntrackableError(
                "the first argument is the Checkpoint; the order is (checkpoint, directory, max_to_keep)"
                if is_swapped
                else "a CheckpointManager needs a milepost.Checkpoint",
                expected="a milepost.Checkpoint",
                found=f"an object of type {type(checkpoint).__module__}.{type(checkpoint).__qualname__}",
                remedy="exchange the first two arguments"
                if is_swapped
                else "pass milepost.Checkpoint(name=object, ...) with the objects to save",
            )
        check_arguments(max_to_keep, keep_checkpoint_every_n_hours, checkpoint_name, checkpoint_interval, init_fn)
        check_times(keep, every_steps, every_seconds)
        check_local(plain_path(checkpoint_name))
        self._state = ManagedSeries(
            checkpoint,
            plain_path(directory),
            checkpoint_name,
            RetentionPolicy(max_to_keep, keep_checkpoint_every_n_hours, keep),
            Triggers(every_steps, every_seconds),
            step_counter,
            options,
        )
        self._checkpoint = checkpoint
        self._checkpoint_interval = checkpoint_interval
        self._last_checkpoint_step = last_checkpoint_step
        self._init_fn = init_fn
        self._verify = verify
        self._status: LoadStatus | None = None
        self._latest: str | None = None
        self._restored: str | None = None
        self._skipped: dict[str, MilepostError] = {}
        if is_first(self._state.with_options(None)):
            self._recover()
        self._state.listing.load()
        self._warn_of_unlisted()
        if on_sigterm:
            alive = weakref.ref(self)
            self._state.signal = TerminationSignal()
            self._state.signal.install(lambda: alive() is not None, "the program that makes the CheckpointManager")

    @property
    def _series(self) -> ManagedSeries:
        return self._state

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("__") and "_state" not in self.__dict__:
                raise forgotten_init(self)
            hint = "; use restore_or_initialize(), or restore(step)" if name.startswith("rest") else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def __repr__(self) -> str:
        state: ManagedSeries | None = self.__dict__.get("_state")
        if state is None:
            return of_file(self, None)
        managed, policy = state.listing.managed, state.policy
        facts = [counted(len(managed), "checkpoint")]
        if managed:
            facts.append(f"the last {shortened(os.path.basename(managed[-1].prefix))}")
        kept = [str(each) for each in (policy.max_to_keep, policy.keep) if each is not None]
        facts.append(f"keeps {' and '.join(kept) or 'all'}")
        if self._skipped:
            restored = f"restored {shortened(os.path.basename(self._restored))}, " if self._restored else ""
            facts.append(f"{restored}skipped {len(self._skipped)}")
        return of_file(self, self._state.directory, *facts)

    @property
    def checkpoint(self) -> CheckpointT:
        """The `Checkpoint` that is managed, of the class that was given."""
        return self._checkpoint

    @property
    def directory(self) -> str:
        """The directory, as given."""
        return self._state.directory

    @property
    def checkpoint_interval(self) -> int | None:
        """The smallest number of steps between two saves, or None."""
        return self._checkpoint_interval

    @property
    def checkpoints(self) -> list[str]:
        """The paths of the managed checkpoints, oldest first. Preserved checkpoints are not among them."""
        return [each.prefix for each in self._state.listing.managed]

    @property
    def status(self) -> LoadStatus | None:
        """The status of the restore by `restore_or_initialize`, with assertions and a report; None if nothing was restored."""
        return self._status

    @property
    def skipped(self) -> dict[str, MilepostError]:
        """The checkpoints that were skipped as damaged or missing, by path, each with the error that says why.

        `restore_or_initialize` and `latest_checkpoint` set this anew. It is empty if none was skipped.
        """
        return dict(self._skipped)

    @property
    def latest_checkpoint(self) -> str | None:
        """The path of the newest good checkpoint, or None.

        Checkpoints of an earlier run are verified when this is first read. Those that are damaged or missing are
        skipped with a `SkippedCheckpointWarning`.
        """
        if self._state.must_look:
            self._skipped = {}
            found = newest_good(self._state.storage, self._state.listing.refresh, self._verify, self._skip)
            with self._state.lock:
                # a save in the background may have ended meanwhile
                if self._state.must_look:
                    self._latest, self._state.must_look = found, False
        return self._latest

    @as_written
    def save(
        self,
        checkpoint_number: Any = None,
        check_interval: bool = True,
        options: CheckpointOptions | None = None,
        *,
        metrics: Mapping[str, Any] | None = None,
        metadata: Any = None,
    ) -> str | None:
        """Saves a checkpoint, lists it in the state file, and deletes old checkpoints.

        A save increments the ``save_counter`` of the checkpoint, also if another number is given.

        Args:
            checkpoint_number: The number of the checkpoint: an integer, or a variable that holds one; by default
                ``save_counter``.
            check_interval: Whether to do nothing if the ``checkpoint_interval`` has not passed. It has no effect
                without one. A manager with an interval never saves twice at the same step.
            options: How to save; by default the manager's options.
            metrics: Numbers by name, or dicts of them, for `milepost.retention.Best`, `best_step` and `metrics`. Arrays and tensors
                of one element are accepted. Of several processes, those of process 0 are saved.
            metadata: Anything that JSON can hold, for `metadata`. Of several processes, that of process 0 is saved.

        Returns:
            The path of the checkpoint, ``<directory>/<checkpoint_name>-<number>``, or None if nothing was saved. An
            asynchronous save becomes the latest checkpoint when it is durable; `sync` waits for that.

        Raises:
            CheckpointExistsError: The directory has checkpoints of this name, and ``checkpoint`` has restored none of
                them.
            UntrackableError: An object cannot be saved as it is held.
            UnsupportedError: Metrics are no numbers, or JSON cannot hold the metadata.
            CoordinationError: Of several processes one failed, did not answer, or holds other objects or values. Nothing was
                saved on any of them.
            StorageError: The files cannot be written. Existing files are unchanged.
            AfterCommitError: The checkpoint is saved and can be restored, but a later step failed.
        """
        refuse_if_traced("a save")
        if self._checkpoint_interval is not None and self._is_too_early(
            whole_number(self._state.step_counter), check_interval
        ):
            return None
        with exclusive(self._checkpoint):
            return self._save(checkpoint_number, check_interval, options, lambda: encode(metrics, metadata))

    def _save(
        self,
        checkpoint_number: Any,
        check_interval: bool,
        options: CheckpointOptions | None,
        encoded: Callable[[], bytes | None],
    ) -> str | None:
        step = None
        if self._checkpoint_interval is not None:
            step = whole_number(self._state.step_counter)
            if self._is_too_early(step, check_interval):
                return None  # another thread has just saved
        counter = self._checkpoint.save_counter
        counter.assign_add(1)
        save: ListedSave | None = None
        try:
            number = whole_number(counter if checkpoint_number is None else checkpoint_number)
            if number < 0:
                raise UnsupportedError(
                    "the number of a checkpoint cannot be negative",
                    expected="0 or more",
                    found=number,
                    remedy="pass 0 or more, or leave checkpoint_number out to number by save_counter",
                )
            prefix = f"{self._state.prefix}-{number}"
            save = new = ListedSave(
                prefix,
                self._state.with_options(options),
                lambda _, prefix, durable: self._publish(prefix, durable, new.metadata),
            )
            save.listed_elsewhere = lambda: self._follow(prefix)
            with save.together():
                save.metadata = encoded() if save.leads else None
            write_numbered(self._checkpoint, save)
        except BaseException:
            if save is not None and save.is_committed:
                self._last_checkpoint_step = step
            else:
                counter.assign_sub(1)
            raise
        self._last_checkpoint_step = step
        self._state.note_saved(
            number if checkpoint_number is not None or self._state.asked is None else self._state.asked
        )
        return prefix

    @as_written
    def restore(self, step: Any = None) -> LoadStatus:
        """Restores the checkpoint with a number.

        Args:
            step: The number of the checkpoint: an integer, or a variable that holds one. It need not be managed. By default the
                newest good one is restored, as by `restore_or_initialize`, but ``init_fn`` is not called.

        Returns:
            A status with assertions and a full report.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint. Without a step: no checkpoint at all.
            CorruptCheckpointError: The checkpoint is damaged. Nothing was changed.
            MismatchError: A saved value has a different shape or dtype than the live object. Nothing was changed.

        Example:
            >>> import milepost, tempfile
            >>> checkpoint = milepost.Checkpoint(value=milepost.Variable(0))
            >>> manager = milepost.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=5)
            >>> for step in (10, 20, 30):
            ...     value = checkpoint.value.assign(step)
            ...     path = manager.save(step)
            >>> status = manager.restore(20).assert_consumed()
            >>> int(checkpoint.value)
            20
        """
        if step is None:
            if self._restore_newest() is None:
                raise CheckpointNotFoundError(
                    "there is no checkpoint to restore",
                    file=self._state.directory,
                    expected=f"a state file that lists checkpoints named {os.path.basename(self._state.prefix)}-<number>",
                    remedy="call restore_or_initialize() if the first run begins without one",
                )
            assert self._status is not None, "a checkpoint was restored"
            return self._status
        prefix = self._state.path_of(step)
        self._checkpoint.sync()
        try:
            status = self._status = self._checkpoint.restore(prefix, self._state.with_options(None))
        except CheckpointNotFoundError as error:
            if self._state.storage.is_file(index_path(prefix)):
                raise  # a data file is missing
            raise self._state.no_such(prefix) from error
        self._restored, self._skipped = prefix, {}
        self._note_restored(prefix)
        return status

    @as_written
    def restore_or_initialize(self) -> str | None:
        """Restores the newest good checkpoint, or calls ``init_fn`` if there are no checkpoints.

        A damaged or missing checkpoint is skipped with a `SkippedCheckpointWarning`, and the next older one is tried. A
        skipped checkpoint changes nothing. Of several processes process 0 chooses and warns, and all restore the same.

        Returns:
            The path of the checkpoint that was restored, or None.

        Raises:
            CheckpointNotFoundError: The state file lists checkpoints, and all of them are missing.
            CorruptCheckpointError: The state file lists checkpoints, and all of them are damaged or missing.
            MismatchError: A saved value has a different shape or dtype than the live object. Nothing was changed.
        """
        prefix = self._restore_newest()
        if prefix is None and self._init_fn is not None:
            self._init_fn()
        return prefix

    def _restore_newest(self) -> str | None:
        """Restores the newest good checkpoint, and returns its path. None if there are no checkpoints."""
        self._checkpoint.sync()
        problems: dict[str, MilepostError] = {}
        refused: set[str] = set()
        self._skipped = {}

        def choose() -> dict[str, Any]:
            found = newest_good(
                self._state.storage,
                lambda: _without(refused, self._state.listing.refresh()),
                self._verify,
                problems.__setitem__,
            )
            return {"prefix": found, "problems": {each: facts_of(problem) for each, problem in problems.items()}}

        while True:
            chosen = first_decides(
                self._state.with_options(None), f"choose a checkpoint of {self._state.directory}", choose
            )
            prefix: str | None = chosen["prefix"]
            for each, facts in chosen["problems"].items():
                problems.setdefault(each, error_of(facts))
            if prefix is None:
                if not problems:
                    break
                self._restored = None
                for each, problem in problems.items():
                    self._skip(each, problem)
                raise self._none_is_good(list(problems.values()))
            try:
                self._status = self._checkpoint.restore(prefix, self._state.with_options(None))
            except (CheckpointNotFoundError, CorruptCheckpointError) as error:
                problems[prefix] = error
                refused.add(prefix)
                continue
            break
        state = self._state.listing.refresh() if problems else None
        listed = [] if state is None else state.newest_first()
        for each, problem in problems.items():
            # another process may have removed it after it was verified
            is_pruned = each in refused and each not in listed and isinstance(problem, CheckpointNotFoundError)
            if not is_pruned:
                self._skip(each, problem, prefix)
        self._restored = prefix
        if prefix is not None:
            with self._state.lock:
                self._latest, self._state.must_look = prefix, False
            self._note_restored(prefix)
        return prefix

    def adopt_checkpoints(self) -> list[str]:
        """Adds to the state file all checkpoints of this series in the directory, for example those that were copied there.

        From then on they are restored, kept and removed like all others. The time of each is that of its index file. If
        no checkpoint was listed before, the one with the highest number becomes the latest. Of several processes all call
        this, and process 0 writes the state file.

        Returns:
            The paths of the checkpoints that were added, in the order of their numbers.

        Raises:
            StateFileError: The state file is malformed.
            StorageError: The directory cannot be read, or the state file cannot be written.

        Example:
            >>> import milepost, os, tempfile
            >>> directory = tempfile.mkdtemp()
            >>> path = milepost.Checkpoint(step=milepost.Variable(3)).write(directory + "/ckpt-7")
            >>> manager = CheckpointManager(milepost.Checkpoint(step=milepost.Variable(0)), directory, max_to_keep=5)
            >>> manager.adopt_checkpoints() == [path]
            True
            >>> manager.restore_or_initialize() == path
            True
        """
        found: list[str] = first_decides(
            self._state.with_options(None),
            f"adopt checkpoints of {self._state.directory}",
            lambda: self._state.listing.adopt(),
        )
        with self._state.lock:
            if not is_first(self._state.with_options(None)):
                self._state.listing.load()
            self._state.must_look |= bool(found)
        return found

    def sync(self) -> None:
        """Waits for the asynchronous save in progress, if any, and raises its error."""
        self._checkpoint.sync()

    def __reduce__(self) -> Any:
        raise UnsupportedError(
            "a CheckpointManager cannot be copied or pickled: two managers would delete each other's checkpoints",
            file=self._state.directory,
            remedy="pass the directory instead, and make the CheckpointManager in the one process that saves",
        )

    def _skip(self, prefix: str, problem: MilepostError, instead: str | None = None) -> None:
        """Remembers why a checkpoint is skipped, without the traceback, and warns of it, once for all processes."""
        self._skipped[prefix] = problem
        each: BaseException | None = problem
        while each is not None:
            each.__traceback__ = None
            each = each.__cause__ or each.__context__
        if is_first(self._state.with_options(None)):
            warn(skipped_message(prefix, problem, instead), SkippedCheckpointWarning)

    def _recover(self) -> None:
        """Completes or removes what killed and crashed saves left behind."""
        try:
            list_announced(self._state.storage, self._state.directory)
            finish_removals(self._state.storage, self._state.listing.home, self._state.directory)
            for directory in dict.fromkeys((self._state.directory, self._state.listing.home)):
                sweep_leftovers(self._state.storage, directory)
        except StorageError as error:
            warn(f"leftovers of crashed saves could not be removed: {error}")

    def _warn_of_unlisted(self) -> None:
        if self._state.listing.restorable() is not None:
            return
        unlisted = numbered(self._state.storage, self._state.prefix)
        if unlisted:
            warn(
                f"no state file lists the checkpoints in {self._state.directory}, so restore_or_initialize() will not "
                f"restore them; the newest is {unlisted[-1]}: call adopt_checkpoints() first to continue from them, or use "
                "another directory"
            )
        if is_saved_model(self._state.storage, self._state.directory):
            warn(
                f"{self._state.directory} is a SavedModel, which a CheckpointManager does not restore: to start from its weights, call "
                "milepost.load_weights(model, directory) before restore_or_initialize()"
            )

    def _is_too_early(self, step: int, check_interval: bool) -> bool:
        last, interval = self._last_checkpoint_step, self._checkpoint_interval
        if last is None or interval is None:
            return False
        return step == last or (check_interval and step < last + interval)

    def _note_restored(self, prefix: str) -> None:
        """Counts intervals from the checkpoint that was restored."""
        if self._checkpoint_interval is not None:
            self._last_checkpoint_step = whole_number(self._state.step_counter)
        if self._state.step_counter is not None:
            self._state.note_saved(whole_number(self._state.step_counter))
        elif self._state.listing.is_own(prefix):
            self._state.note_saved((split_number(prefix) or ("", 0))[1])

    def _publish(self, prefix: str, durable: bool, metadata: bytes | None) -> None:
        """Lists a checkpoint that has been saved, and deletes old ones."""
        with self._state.lock:
            self._state.metadata.remember(prefix, metadata)
            self._state.listing.add(prefix)
            self._latest, self._state.must_look = prefix, False
            self._state.listing.record(prefix)
            if not durable:
                return  # after a power cut, only the older ones may be left
            try:
                self._delete_old(prefix)
            except Exception as error:  # a policy of the program may raise anything
                warn(f"{prefix} is saved, but older checkpoints could not be removed: {error}")

    def _follow(self, path: str) -> None:
        """Takes over what process 0 has listed and deleted."""
        with self._state.lock:
            self._state.metadata.forget(path)
            self._state.listing.load()
            self._latest, self._state.must_look = path, False

    def _delete_old(self, latest: str) -> None:
        policy, listing = self._state.policy, self._state.listing
        if policy.keeps_all or (policy.max_to_keep is not None and len(listing.managed) <= policy.max_to_keep):
            return
        decision = policy.apply(self._state.facts(metrics=policy.uses_metrics), listing.last_preserved)
        if len(decision.keep) == len(listing.managed):
            return
        listing.last_preserved = decision.last_preserved
        listing.drop({each.prefix for each in decision.preserve})
        doomed = [each.prefix for each in decision.delete if listing.is_own(each.prefix)]
        with removal(self._state.storage, doomed) as free:
            try:
                remove_bundles(self._state.storage, free)
            finally:
                gone = {prefix for prefix in free if not is_left(self._state.storage, prefix)}
                listing.drop(gone)
                for prefix in gone:
                    self._state.metadata.forget(prefix)
            pinned = set(doomed).difference(free)
            listing.drop({each.prefix for each in decision.delete}.difference(pinned))
            listing.record(latest)

    def _none_is_good(self, problems: list[MilepostError]) -> MilepostError:
        all_missing = all(isinstance(problem, CheckpointNotFoundError) for problem in problems)
        kind = CheckpointNotFoundError if all_missing else CorruptCheckpointError
        return kind(
            "none of the checkpoints that the state file lists can be restored",
            file=os.path.join(self._state.directory, STATE_FILE),
            found="; ".join(f"{problem.problem} ({problem.file})" for problem in problems),
            remedy="copy a good checkpoint back; to start over, move or delete the damaged checkpoints together with the state "
            "file, or use another directory",
        )


def series_of(manager: CheckpointManager[Any]) -> ManagedSeries:
    """The series of a manager, for another manager that is made of it."""
    return manager._state


def _without(paths: set[str], state: CheckpointState | None) -> CheckpointState | None:
    """A state without some of its checkpoints."""
    left = [] if state is None else [prefix for prefix in state.newest_first() if prefix not in paths]
    return CheckpointState(left[0], tuple(reversed(left))) if left else None
