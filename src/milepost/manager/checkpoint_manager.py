"""`CheckpointManager`: numbers checkpoints, records them in the state file, and removes old ones.

A save has four steps: the new checkpoint becomes durable; the state file that lists it becomes durable; old checkpoints
are removed, index before data; a state file without them becomes durable. So after a crash at any point, the state file
lists a good checkpoint, and every checkpoint that should have been removed. A process may be killed after a checkpoint is
saved and before it is listed. Each save is announced beforehand (`milepost.series.announcement`), so the next manager lists
that checkpoint. A pin is a separate file (`milepost.series.pins`), which every removal looks for.

===================  ===============================================================================
`managed_series`     the state that all parts of a manager share
`listing`            the checkpoints that the state file lists, by series
`earlier_runs`       what a new manager completes, removes and warns of
`newest`             the newest good checkpoint: how it is found, and why others are skipped
`publishing`         what follows a save: the checkpoint is listed, and old ones are deleted
`by_step`            the methods for checkpoints by number: rank, pin, delete
`managed_save`       one save from its plan to its record in `health`
`committed`          what a function of the program is told of each checkpoint
`finite_policy`      which values make a checkpoint one that is not finite; what is said of it, `finite`
`tolerance`          which failed saves a run goes on through; how it does, `tolerated`
`when_to_save`       the methods that tell when to save, with `triggers`, `agreement`, `termination`
`step_interval`      TensorFlow's ``checkpoint_interval``
`saved_metadata`     the metrics and metadata of the checkpoints, each read once
`arguments`          checks of the arguments of a manager; `whole_numbers` converts steps and numbers
===================  ===============================================================================
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal

from milepost.bundle import index_path
from milepost.checkpoint.checkpoint import Checkpoint, exclusive, write_numbered
from milepost.checkpoint.tracing import as_written, refuse_if_traced
from milepost.distributed.find import first_decides, is_first
from milepost.engine.options import CheckpointOptions, takes_options
from milepost.errors import CheckpointNotFoundError, MilepostError, UnsupportedError, UntrackableError
from milepost.graph.description import counted, html_table, moment, of_file, shortened, shown
from milepost.graph.remedies import forgotten_init
from milepost.manager.arguments import check_arguments, check_switch, check_times
from milepost.manager.by_step import ByStep
from milepost.manager.committed import OnCommitted, check_hook
from milepost.manager.earlier_runs import complete_earlier_runs, warn_of_unlisted
from milepost.manager.finite import tell_restored
from milepost.manager.finite_policy import KeepLastFinite, finite_policy
from milepost.manager.managed_save import ManagedSave
from milepost.manager.managed_series import ManagedSeries
from milepost.manager.newest import NewestCheckpoint
from milepost.manager.signals.termination import termination_signal
from milepost.manager.step_interval import StepInterval
from milepost.manager.tolerance import Tolerate, policy_of
from milepost.manager.tolerated import raise_last, save_tolerantly
from milepost.manager.triggers import Triggers
from milepost.manager.whole_numbers import whole_number
from milepost.restoring.status import LoadStatus
from milepost.retention import Policy
from milepost.retention.rules import RetentionPolicy
from milepost.saving.files import Source, gathered
from milepost.series.directory import Verification
from milepost.series.metadata import encode
from milepost.series.series import split_number
from milepost.series.state_file import PathLike
from milepost.storage.paths import check_local, plain_path

if TYPE_CHECKING:
    from typing_extensions import (
        TypeVar,
    )  # Type checkers only: without brackets, a `CheckpointManager` has a plain `Checkpoint`.

    CheckpointT = TypeVar("CheckpointT", bound=Checkpoint, default=Checkpoint, covariant=True)
else:
    from typing import TypeVar

    CheckpointT = TypeVar("CheckpointT")


class CheckpointManager(ByStep, Generic[CheckpointT]):
    """Keeps a series of checkpoints in a directory: numbers them, lists them in a state file, and deletes old ones.

    Arguments, files and rules are those of ``tf.train.CheckpointManager``, and either can continue the other's series. In
    addition, this manager skips damaged and missing checkpoints and restores the newest good one. When it is made, it
    removes the temporary files of crashed saves and lists checkpoints that a killed process had saved.

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
        keep: Which checkpoints to keep in addition to the newest ``max_to_keep``: policies of `milepost.retention`, such as
            ``Best(3, by="loss", mode="min") | EverySteps(10_000)``. With ``max_to_keep=None`` it decides alone. The newest and all
            pinned checkpoints are always kept.
        every_steps: Steps. `should_save` is true at each multiple.
        every_seconds: Seconds. `should_save` is true when this time has passed since the last save.
        on_failure: What becomes of a save that fails or hangs. ``"raise"`` raises its error: from `save` or, if the save is asynchronous, from
            the next call. `milepost.Tolerate` lets the run go on through failures of the storage, within limits.
        nonfinite: What becomes of a state with NaN or infinity. By default, nobody looks. ``"keep_last_finite"``, or a
            `milepost.KeepLastFinite`: its checkpoint is saved, marked and warned of, and the last finite one is kept.
        on_committed: A function that is told of each checkpoint when it is durable and listed, as a
            `milepost.CommittedSave`, for example to log it to a tracker of experiments. It is called on the thread that has
            written the checkpoint: that of the caller or, for an asynchronous save and with `milepost.Tolerate`, one of milepost's. With several
            processes, process 0 calls it. An error of the function becomes a warning.
        on_sigterm: Whether to catch SIGTERM, from now until `close` or the end of the ``with`` block. After the signal,
            `should_save` and `reached_preemption` are true. The same signal once more, some seconds later and while nothing is saved, goes to the
            previous handler, which by default ends the process. This works only in the main thread.
        on_signal: Signals to catch as SIGTERM is, such as ``signal.SIGUSR1``, or several in a list.
        grace_seconds: Seconds after the signal, after which the process ends even if a step or the last save has not. It ends with 128 and
            the number of the signal, and the checkpoint before that save stays. None for no limit.
        verify: How to verify a checkpoint of an earlier run before it is used. ``"checksums"`` reads all data,
            ``"files"`` reads the index and the sizes of the data files, ``"none"`` only checks that the checkpoint
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

        The best checkpoints are kept in addition to the newest:

        >>> from milepost.retention import Best
        >>> manager = CheckpointManager(checkpoint, tempfile.mkdtemp(), 1, keep=Best(2, by="loss", mode="min"))
        >>> for step, loss in enumerate([0.9, 0.2, 0.5, 0.4, 0.7]):
        ...     path = manager.save(step, metrics={"loss": loss})
        >>> manager.steps, manager.best_step()
        ([1, 3, 4], 1)
    """

    @takes_options()
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
        on_signal: int | Collection[int] | None = None,
        grace_seconds: float | None = None,
        on_failure: Literal["raise"] | Tolerate = "raise",
        nonfinite: Literal["keep_last_finite"] | KeepLastFinite | None = None,
        on_committed: OnCommitted | None = None,
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
        check_switch("on_sigterm", on_sigterm)
        check_hook(on_committed)
        terminated = termination_signal(on_sigterm, on_signal, grace_seconds)
        check_local(plain_path(checkpoint_name))
        self._state = ManagedSeries(
            checkpoint,
            plain_path(directory),
            checkpoint_name,
            RetentionPolicy(max_to_keep, keep_checkpoint_every_n_hours, keep),
            Triggers(every_steps, every_seconds),
            step_counter,
            options,
            finite_policy(nonfinite),
        )
        self._state.tolerate = policy_of(on_failure)
        self._state.on_committed = on_committed
        self._checkpoint = checkpoint
        self._interval = StepInterval(step_counter, checkpoint_interval, last_checkpoint_step)
        self._init_fn = init_fn
        self._newest = NewestCheckpoint(self._state, verify)
        self._status: LoadStatus | None = None
        if is_first(self._state.with_options(None)):
            complete_earlier_runs(self._state)
        self._state.listing.load()
        warn_of_unlisted(self._state)
        if terminated is not None:
            alive = weakref.ref(self)
            self._state.signal = terminated
            terminated.install(lambda: alive() is not None, "the program that makes the CheckpointManager")

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
        managed, policy = state.listing.present, state.policy
        facts = [counted(len(managed), "checkpoint")]
        if managed:
            facts.append(f"the last {shortened(os.path.basename(managed[-1].prefix))}")
        kept = [shown(each) for each in (policy.max_to_keep, policy.keep) if each is not None]
        facts.append(f"keeps {' and '.join(kept) or 'all'}")
        newest: NewestCheckpoint | None = self.__dict__.get("_newest")
        if newest is not None and newest.skipped:
            restored = f"restored {shortened(os.path.basename(newest.restored))}, " if newest.restored else ""
            facts.append(f"{restored}skipped {len(newest.skipped)}")
        return of_file(self, self._state.directory, *facts)

    def _repr_html_(self) -> str:
        """A table of the checkpoints with their metrics, the newest first, which a notebook shows."""
        state: ManagedSeries | None = self.__dict__.get("_state")
        managed = [] if state is None else list(reversed(state.listing.present))
        rows = (
            [os.path.basename(each.prefix), moment(each.timestamp), "" if state is None else state.metrics_text(each)]
            for each in managed
        )
        return html_table(repr(self), ["checkpoint", "saved", "metrics"], rows, len(managed))

    @property
    def checkpoint(self) -> CheckpointT:
        """The `Checkpoint` that the manager saves and restores."""
        return self._checkpoint

    @property
    def directory(self) -> str:
        """The directory, as given."""
        return self._state.directory

    @property
    def checkpoint_interval(self) -> int | None:
        """The smallest number of steps between two saves, or None."""
        return self._interval.steps

    @property
    def checkpoints(self) -> list[str]:
        """The paths of the managed checkpoints, oldest first. Preserved checkpoints are not managed."""
        return [each.prefix for each in self._state.listing.present]

    @property
    def status(self) -> LoadStatus | None:
        """The status of the last restore, with assertions and a report; None if nothing was restored."""
        return self._status

    @property
    def skipped(self) -> dict[str, MilepostError]:
        """The checkpoints that were skipped as damaged or missing, by path, each with the error that says why.

        `restore_or_initialize` and `latest_checkpoint` set this anew. It is empty if none was skipped.
        """
        return dict(self._newest.skipped)

    @property
    def latest_checkpoint(self) -> str | None:
        """The path of the newest good checkpoint, or None.

        Checkpoints of an earlier run are verified when this is first read. Those that are damaged or missing are
        skipped with a `SkippedCheckpointWarning`.
        """
        return self._newest.find()

    @as_written
    @takes_options("save")
    def save(
        self,
        checkpoint_number: Any = None,
        check_interval: bool = True,
        options: CheckpointOptions | None = None,
        *,
        metrics: Mapping[str, Any] | None = None,
        metadata: Any = None,
        files: Mapping[str, Source] | None = None,
    ) -> str | None:
        """Saves a checkpoint, lists it in the state file, and deletes old checkpoints.

        A save increments the ``save_counter`` of the checkpoint, even if another number is given.

        Args:
            checkpoint_number: The number of the checkpoint: an integer, or a variable that holds one; by default
                ``save_counter``.
            check_interval: Whether to do nothing if the ``checkpoint_interval`` has not passed. It has no effect
                without one. A manager with an interval never saves twice at the same step.
            options: How to save; by default the manager's options.
            metrics: Numbers by name, or dicts of them, for `milepost.retention.Best`, `best_step` and `metrics`. Arrays and tensors
                of one element are accepted. With several processes, those of process 0 are saved.
            metadata: Anything that JSON can hold, for `metadata`. With several processes, that of process 0 is saved.
            files: Small files by name, for `files`, such as ``{"tokenizer": directory}``: bytes, or the path of a file or of a directory, which is
                saved with all that is below it. They are read before this returns, and may have 256 MiB in all. With several
                processes, those of process 0 are saved.

        Returns:
            The path of the checkpoint, ``<directory>/<checkpoint_name>-<number>``, or None if nothing was saved, because the interval has not
            passed or because the save has failed and `milepost.Tolerate` lets the run go on. An asynchronous save becomes the latest
            checkpoint when it is durable; `sync` waits for that.

        Raises:
            CheckpointExistsError: The directory has checkpoints of this name, and ``checkpoint`` has restored none of
                them.
            UntrackableError: An object cannot be saved as it is held.
            UnsupportedError: A metric is not a number, JSON cannot hold the metadata, or a file cannot be saved: it is a device, a symbolic link
                that leads out of its directory, or too large.
            CoordinationError: One of several processes failed, did not answer, or holds other objects or values. No process has
                saved anything.
            StorageError: The files cannot be written. Existing files are unchanged. With `milepost.Tolerate`: too many saves have failed.
            AfterCommitError: The checkpoint is saved and can be restored, but a later step failed.
        """
        refuse_if_traced("a save")
        check_switch("check_interval", check_interval)
        step = self._interval.now()
        if self._interval.is_too_early(step, check_interval):
            return None
        series, chosen = self._state, self._state.with_options(options)
        writing = replace(chosen, enable_async=True) if series.tolerate is not None else chosen

        def prepare(save: ManagedSave) -> None:
            save.metadata, save.files = encode(metrics, metadata), gathered(files, series.directory)

        def write() -> ManagedSave | None:
            with exclusive(self._checkpoint, chosen):
                return self._save(checkpoint_number, check_interval, writing, prepare)

        if series.tolerate is None:
            saved = write()
            return None if saved is None else saved.prefix
        number = self._number(self._checkpoint.save_counter + 1 if checkpoint_number is None else checkpoint_number)
        path = save_tolerantly(series, number, chosen, write)
        if path is None:
            self._interval.last = step
            series.note_tried(number if checkpoint_number is not None or series.asked is None else series.asked)
        return path

    def _save(
        self,
        checkpoint_number: Any,
        check_interval: bool,
        options: CheckpointOptions,
        prepare: Callable[[ManagedSave], object],
    ) -> ManagedSave | None:
        step = self._interval.now()
        if self._interval.is_too_early(step, check_interval):
            return None  # another thread has just saved
        counter = self._checkpoint.save_counter
        counter.assign_add(1)
        save: ManagedSave | None = None
        try:
            number = self._number(counter if checkpoint_number is None else checkpoint_number)
            save = ManagedSave(self._state, number, options)
            with save.together():
                if save.leads:
                    prepare(save)
            write_numbered(self._checkpoint, save)
        except BaseException:
            if save is not None and save.is_committed:
                self._interval.last = step
            else:
                counter.assign_sub(1)
            raise
        self._interval.last = step
        self._state.note_saved(
            number if checkpoint_number is not None or self._state.asked is None else self._state.asked
        )
        return save

    def _number(self, value: Any) -> int:
        """The number of a new checkpoint.

        Raises:
            UnsupportedError: It is not a whole number from 0 on.
        """
        number = whole_number(value)
        if number < 0:
            raise UnsupportedError(
                "the number of a checkpoint cannot be negative",
                expected="0 or more",
                found=number,
                remedy="pass 0 or more, or leave checkpoint_number out to number by save_counter",
            )
        return number

    @as_written
    @takes_options("restore")
    def restore(self, step: Any = None) -> LoadStatus:
        """Restores the checkpoint with a number.

        Args:
            step: The number of the checkpoint: an integer, or a variable that holds one. It need not be managed. By default the
                newest good one is restored, as by `restore_or_initialize`, but ``init_fn`` is not called.

        Returns:
            A status with assertions and a full report.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint; without a step, there is no checkpoint at all.
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
            if self._restore_newest() is None or self._status is None:
                raise CheckpointNotFoundError(
                    "there is no checkpoint to restore",
                    file=self._state.directory,
                    expected=f"a state file that lists checkpoints named {os.path.basename(self._state.prefix)}-<number>",
                    remedy="call restore_or_initialize() if the first run begins without one",
                )
            return self._status
        prefix = self._state.path_of(step)
        self._checkpoint.sync()
        try:
            status = self._status = self._checkpoint.restore(prefix, self._state.with_options(None))
        except CheckpointNotFoundError as error:
            if self._state.storage.is_file(index_path(prefix)):
                raise  # a data file is missing
            raise self._state.no_such(prefix) from error
        self._newest.restored, self._newest.skipped = prefix, {}
        self._note_restored(prefix)
        return status

    @as_written
    @takes_options("restore")
    def restore_or_initialize(self) -> str | None:
        """Restores the newest good checkpoint, or calls ``init_fn`` if there are no checkpoints.

        A damaged or missing checkpoint is skipped with a `SkippedCheckpointWarning`, and the next older one is tried. A
        skipped checkpoint changes nothing. With several processes, process 0 chooses the checkpoint and warns, and all restore it.

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
        restored = self._newest.restore()
        if restored is None:
            return None
        prefix, self._status = restored
        self._note_restored(prefix)
        return prefix

    def adopt_checkpoints(self) -> list[str]:
        """Adds all checkpoints of this series in the directory to the state file, for example those that were copied there.

        From then on they are restored, kept and removed like all others. The time of each is that of its index file. If no
        checkpoint was listed before, the one with the highest number becomes the latest. With several processes, all of them
        call this, and process 0 writes the state file.

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
        adopted: list[str] = first_decides(
            self._state.with_options(None),
            f"adopt checkpoints of {self._state.directory}",
            lambda: self._state.listing.adopt(),
        )
        with self._state.lock:
            if not is_first(self._state.with_options(None)):
                self._state.listing.load()
            self._state.must_look |= bool(adopted)
        return adopted

    def sync(self) -> None:
        """Waits for the asynchronous save in progress, if any, and raises its error. With `milepost.Tolerate`, this raises an error if the last
        save has failed, or hangs.
        """
        try:
            self._checkpoint.sync()
        except MilepostError:
            self._state.record.untold = None
            raise
        raise_last(self._state)

    def __reduce__(self) -> Any:
        raise UnsupportedError(
            "a CheckpointManager cannot be copied or pickled: two managers would delete each other's checkpoints",
            file=self._state.directory,
            remedy="pass the directory instead, and make the CheckpointManager in the one process that saves",
        )

    def _note_restored(self, prefix: str) -> None:
        """Counts the steps until the next save from the checkpoint that was restored, and looks at what is known of its values."""
        if self._state.finite is not None:
            self._note_finite(prefix)
        self._interval.last = self._interval.now()
        if self._state.step_counter is not None:
            self._state.note_saved(whole_number(self._state.step_counter))
        elif self._state.listing.is_own(prefix):
            self._state.note_saved((split_number(prefix) or ("", 0))[1])

    def _note_finite(self, prefix: str) -> None:
        saved = self._state.metadata.of(prefix)
        self._state.infinite = None if saved.infinite is None else frozenset(saved.infinite)
        if saved.nonfinite and is_first(self._state.with_options(None)):
            tell_restored(self._state, prefix, saved.nonfinite)


def path_to_restore(manager: CheckpointManager[Any]) -> str | None:
    """The path of the checkpoint that ``restore_or_initialize()`` of a manager would restore, or None."""
    return manager._newest.find_to_restore()


def note_restored(manager: CheckpointManager[Any], path: str) -> None:
    """Tells a manager that its checkpoint at a path was restored, by other means than a method of the manager."""
    manager._note_restored(path)


def series_of(manager: CheckpointManager[Any]) -> ManagedSeries:
    """The series of a manager, for a class that wraps the manager."""
    return manager._state
