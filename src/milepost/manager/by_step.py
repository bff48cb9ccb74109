"""What a manager does with checkpoints that are named by their numbers, and when it says that a save is due.

`ByStep` has the methods that `CheckpointManager` and `milepost.jax.TreeManager` share.
"""

from __future__ import annotations

import abc
import time
from types import TracebackType
from typing import Any, Self

from milepost.bundle import index_path
from milepost.checkpoint.checkpoint import exclusive, is_saving
from milepost.engine.arguments import wrong
from milepost.engine.metadata import plain_metrics
from milepost.engine.pins import pin, pinned_in, unpin
from milepost.engine.removal import finish_removals, is_left
from milepost.engine.series import split_number
from milepost.engine.together import first_decides
from milepost.errors import CheckpointNotFoundError, UnsupportedError
from milepost.manager.agreement import Agreed, agree
from milepost.manager.managed_series import ManagedSeries
from milepost.manager.whole_numbers import whole_number
from milepost.retention import AnyOf, Best, ManagedCheckpoint, Policy, RetentionPlan
from milepost.retention.by_metric import By, Mode, check_known, ranked


class ByStep(abc.ABC):
    """Checkpoints of a series by their numbers: to list, delete, pin and rank them, and to ask whether to save."""

    @property
    @abc.abstractmethod
    def _series(self) -> ManagedSeries:
        """The series."""

    @property
    @abc.abstractmethod
    def latest_checkpoint(self) -> str | None:
        """The path of the newest good checkpoint, or None."""

    @abc.abstractmethod
    def sync(self) -> None:
        """Waits for the asynchronous save in progress, if any, and raises its error."""

    @property
    def steps(self) -> list[int]:
        """The numbers of the managed checkpoints, in the order of `checkpoints`: the one that was saved last is last.

        The number of a checkpoint is the training step if the program passes that to ``save()``.
        """
        return [each.step for each in self._series.listing.managed]

    @property
    def latest_step(self) -> int | None:
        """The number of `latest_checkpoint`, which is verified; None if there is no good checkpoint of this series."""
        path = self.latest_checkpoint
        if path is None or not self._series.listing.is_own(path):
            return None
        return (split_number(path) or ("", None))[1]

    def best_step(self, by: By | None = None, mode: Mode | None = None) -> int | None:
        """The number of the checkpoint with the best value of a metric.

        Args:
            by: The name of a metric that was passed to ``save(metrics=...)``, or a function of all metrics; by default that of the
                first `milepost.retention.Best` in ``keep``.
            mode: ``"min"`` if lower values are better, ``"max"`` if higher ones are; by default as for ``by``.

        Returns:
            Its number, or None if no checkpoint has metrics, or a finite value of this one. Of equal values the one that was saved first counts.

        Raises:
            KeyNotFoundError: ``by`` is a name, and the checkpoints have other metrics, and not this one.
            UnsupportedError: One argument is missing, and ``keep`` has no `milepost.retention.Best`; or ``mode`` is neither.
            StorageError: A checkpoint cannot be read, and the reason is not damage.

        Example:
            >>> import milepost, tempfile
            >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
            >>> manager = milepost.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=5)
            >>> for step, loss in [(10, 0.5), (20, 0.2), (30, 0.4)]:
            ...     path = manager.save(step, metrics={"loss": loss})
            >>> manager.best_step(by="loss", mode="min"), manager.latest_step
            (20, 30)
        """
        series = self._series
        is_asked = by is not None
        if by is None or mode is None:
            rule = _first_best(series.policy.keep)
            if rule is None or by is not None or mode is not None:
                raise UnsupportedError(
                    "best_step() must know by which metric, and whether lower or higher is better",
                    expected="best_step(by='loss', mode='min'), or a manager with keep=Best(...)",
                    found=f"by={by!r}, mode={mode!r}, keep={series.policy.keep!r}",
                )
            by, mode = rule.by, rule.mode
        if mode not in ("min", "max"):
            raise wrong("mode", mode, "'min' if lower values are better, or 'max'")
        managed = series.facts(metrics=True)
        if is_asked and isinstance(by, str):
            check_known(by, managed, series.directory)
        for place in ranked(managed, by, mode):
            if series.storage.is_file(index_path(managed[place].prefix)):
                return managed[place].step
        return None

    def metrics(self, step: int) -> dict[str, Any] | None:
        """The metrics that were saved with a checkpoint.

        Args:
            step: The number of the checkpoint.

        Returns:
            As passed to ``save(metrics=...)``, with numbers of Python; None if none were.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            CorruptCheckpointError: It is damaged.
        """
        return self._series.saved_with(step).metrics

    def metadata(self, step: int) -> Any:
        """The metadata that was saved with a checkpoint.

        Args:
            step: The number of the checkpoint.

        Returns:
            As passed to ``save(metadata=...)``, after a way through JSON: tuples are lists, and keys of dicts are text. None if
            there is none.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            CorruptCheckpointError: It is damaged.
        """
        return self._series.saved_with(step).metadata

    def delete(self, step: int) -> None:
        """Deletes a checkpoint and its entry in the state file, also if it is the latest or no longer managed.

        If the process is killed meanwhile, the next manager of the directory completes the deletion. Of several processes all
        call this, and process 0 deletes.

        Args:
            step: The number of the checkpoint.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint.
            UnsupportedError: It is pinned.
            StateFileError: The state file is malformed. Nothing was deleted.
            StorageError: A file cannot be removed. The next manager of the directory tries again.

        Example:
            >>> import milepost, tempfile
            >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
            >>> manager = milepost.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=5)
            >>> paths = [manager.save(step) for step in (10, 20, 30)]
            >>> manager.delete(20)
            >>> manager.steps
            [10, 30]
        """
        series = self._series
        prefix = series.path_of(step)
        with exclusive(series.checkpoint):

            def remove() -> bool:
                with series.lock:
                    if not is_left(series.storage, prefix) and step not in self.steps:
                        raise series.no_such(prefix)
                    return series.listing.remove(prefix)

            first_decides(series.with_options(None), f"delete {prefix}", remove)
            with series.lock:
                series.listing.drop({prefix})
                series.must_look = True
                series.metadata.forget(prefix)

    @property
    def pinned(self) -> list[int]:
        """The numbers of the checkpoints that are pinned, in ascending order, as the directory has them now."""
        listing = self._series.listing
        found = pinned_in(self._series.storage, listing.home)
        return sorted((split_number(each) or ("", 0))[1] for each in found if listing.is_own(each))

    def pin(self, step: int) -> None:
        """Keeps a checkpoint from being deleted, until `unpin`.

        No manager of milepost deletes it, in any process, and neither does `milepost.remove_checkpoint`. A pin is an empty file
        beside the checkpoint, ``<path>.pinned``, which is durable when this returns. TensorFlow's manager does not know it. Of
        several processes all call this, and process 0 pins.

        Args:
            step: The number of the checkpoint. It need not be managed.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint, or it was deleted meanwhile.
            StorageError: The file cannot be created.

        Example:
            >>> import milepost, tempfile
            >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
            >>> manager = milepost.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=1)
            >>> path = manager.save(10)
            >>> manager.pin(10)
            >>> paths = [manager.save(step) for step in (20, 30)]
            >>> manager.steps, manager.pinned
            ([10, 30], [10])
        """
        series = self._series
        prefix = series.path_of(step)

        def make() -> None:
            finish_removals(series.storage, series.listing.home, series.directory)
            try:
                pin(series.storage, prefix)
            except CheckpointNotFoundError:
                raise series.no_such(prefix) from None

        first_decides(series.with_options(None), f"pin {prefix}", make)

    def unpin(self, step: int) -> None:
        """Lets a checkpoint be deleted again. The next save deletes it if nothing else keeps it.

        Of several processes all call this.

        Args:
            step: The number of the checkpoint. If it is not pinned, nothing happens.

        Raises:
            StorageError: The pin cannot be removed.
        """
        series = self._series
        prefix = series.path_of(step)
        first_decides(series.with_options(None), f"unpin {prefix}", lambda: unpin(series.storage, prefix))

    def dry_run(self, next_step: int | None = None, metrics: Any = None) -> RetentionPlan:
        """What would be deleted, and why. Nothing is.

        Args:
            next_step: Decide as if a checkpoint with this number had just been saved; by default, as things are now.
            metrics: The metrics of that checkpoint.

        Returns:
            One verdict for each managed checkpoint, oldest first. If it is printed, it has one line for each.

        Raises:
            StorageError: A checkpoint cannot be read, and the reason is not damage.

        Example:
            >>> import milepost, tempfile
            >>> from milepost.retention import Best
            >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
            >>> manager = milepost.CheckpointManager(
            ...     checkpoint, tempfile.mkdtemp(), max_to_keep=1, keep=Best(1, by="loss", mode="min")
            ... )
            >>> for step, loss in [(10, 0.5), (20, 0.2), (30, 0.4)]:
            ...     path = manager.save(step, metrics={"loss": loss})
            >>> print(manager.dry_run(next_step=40, metrics={"loss": 0.3}))
            ckpt-20: keep: the best by loss: 0.2
            ckpt-30: delete: not pinned, not the newest, not kept by Best(n=1, by='loss', mode='min')
            ckpt-40: keep: the newest
        """
        series = self._series
        managed = series.facts(metrics=series.policy.uses_metrics)
        if next_step is not None:
            prefix = series.path_of(next_step)
            new = ManagedCheckpoint(prefix, time.time(), plain_metrics(metrics))
            managed = (*(each for each in managed if each.prefix != prefix), new)
        return series.policy.plan(managed, series.listing.last_preserved)

    def should_save(self, step: Any = None) -> bool:
        """Whether a save is due.

        It is, if ``every_steps`` has a multiple at this step or was passed since the last save, if ``every_seconds`` have passed
        since the last save, or if SIGTERM was received and ``on_sigterm`` is set. If neither ``every_steps`` nor ``every_seconds``
        is given, every step is due. A step that is saved already is not.

        Of several processes all call this with the same step. They exchange a message if ``every_seconds`` or ``on_sigterm`` is
        given: process 0 has the clock, and a signal to one is one to all.

        Args:
            step: The training step: an integer, or a variable that holds one; by default that of ``step_counter``.

        Raises:
            UnsupportedError: There is no step.
            CoordinationError: Of several processes one did not answer, or asks about another step.

        Example:
            >>> import milepost, tempfile
            >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
            >>> with milepost.CheckpointManager(checkpoint, tempfile.mkdtemp(), max_to_keep=2, every_steps=10) as manager:
            ...     for step in range(1, 35):
            ...         if manager.should_save(step):
            ...             path = manager.save(step, metrics={"loss": 1 / step})
            >>> manager.steps
            [20, 30]
        """
        series = self._series
        if step is None:
            step = series.step_counter
            if step is None:
                raise UnsupportedError(
                    "should_save() needs a training step",
                    expected="should_save(step), or a manager with step_counter=",
                    found="neither",
                )
        number = whole_number(step)
        triggers, agreed = series.triggers, self._agreed(number)
        series.asked = number
        if number == series.saved_step:
            return False
        if agreed.preempted or (triggers.every_steps is None and triggers.every_seconds is None):
            return True
        return triggers.by_step(number) or agreed.by_clock

    def reached_preemption(self, step: int | None = None) -> bool:
        """Whether SIGTERM was received, so that the program should save and end. Always false without ``on_sigterm``.

        Of several processes all call this with the same step, and a signal to one is one to all.

        Args:
            step: The training step. The answer is that on which `should_save` based its own for the same step, so a loop that ends
                here has saved. By default, the answer is as of now.

        Raises:
            CoordinationError: As for `should_save`.

        Example:
            >>> import milepost, os, signal, tempfile
            >>> checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
            >>> directory = tempfile.mkdtemp()
            >>> with milepost.CheckpointManager(checkpoint, directory, 2, every_steps=100, on_sigterm=True) as manager:
            ...     for step in range(1, 1000):
            ...         if step == 7:
            ...             os.kill(os.getpid(), signal.SIGTERM)
            ...         if manager.should_save(step):
            ...             path = manager.save(step)
            ...         if manager.reached_preemption(step):
            ...             break
            >>> manager.steps
            [7]
        """
        return self._series.signal is not None and self._agreed(None if step is None else whole_number(step)).preempted

    @property
    def is_saving(self) -> bool:
        """Whether an asynchronous save is in progress in this process."""
        return is_saving(self._series.checkpoint)

    def reload(self) -> None:
        """Reads the state file again, for a program that follows what another one saves.

        Raises:
            StateFileError: The state file is malformed.
            StorageError: The directory cannot be read.
        """
        series = self._series
        with exclusive(series.checkpoint), series.lock:
            series.listing.reload()
            series.metadata.forget()
            series.must_look = True

    def close(self) -> None:
        """Waits for the asynchronous save in progress, raises its error, and stops catching SIGTERM.

        If SIGTERM was received, a handler that the program had installed before is called now. The manager can still be used.
        """
        try:
            self.sync()
        finally:
            self._stop_catching(pass_on=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Does what `close` does. If the body has failed, its error is raised, and that of a save becomes a note of it."""
        if error is None:
            self.close()
            return
        try:
            self.sync()
        except Exception as other:
            error.add_note(f"Beside that, an asynchronous save failed: {type(other).__name__}: {other}")
        finally:
            self._stop_catching(pass_on=False)

    def _stop_catching(self, *, pass_on: bool) -> None:
        if self._series.signal is not None:
            self._series.signal.remove(pass_on=pass_on)

    def _agreed(self, step: int | None) -> Agreed:
        """What all processes know at a step. It is found out once for each step."""
        series = self._series
        if step is None or series.agreed_at is None or series.agreed_at[0] != step:
            received = series.signal is not None and series.signal.received
            triggers = series.triggers
            if series.signal is None and triggers.every_seconds is None:
                return Agreed(preempted=False, by_clock=False)
            what = f"ask whether to save at step {step} in {series.directory}"
            agreed = agree(series.with_options(None), what, received, triggers.by_clock)
            if step is None:
                return agreed
            series.agreed_at = step, agreed
        return series.agreed_at[1]


def _first_best(policy: Policy | None) -> Best | None:
    parts = policy.policies if isinstance(policy, AnyOf) else (policy,)
    return next((each for each in parts if isinstance(each, Best)), None)
