"""The methods by which a manager tells when to save: at which steps, by the clock, and before the process is ended."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from milepost.checkpoint.checkpoint import is_saving
from milepost.errors import UnsupportedError
from milepost.manager.agreement import Agreed, agree
from milepost.manager.completion import Completion
from milepost.manager.whole_numbers import whole_number


class WhenToSave(Completion):
    """Tells the training loop when to save. A ``with`` block calls `close` at its end."""

    def should_save(self, step: Any = None) -> bool:
        """Whether a save is due.

        A save is due if this step is a multiple of ``every_steps`` or one was passed since the last save; if ``every_seconds`` have
        passed since the last save; or if SIGTERM was received and ``on_sigterm`` is set. Without ``every_steps`` and
        ``every_seconds``, a save is due at every step. A step that is already saved is never due.

        With several processes, all of them call this with the same step. If ``every_seconds`` or ``on_sigterm`` is given, they
        exchange a message: the clock of process 0 decides, and a signal to one process counts for all.

        Args:
            step: The training step: an integer, or a variable that holds one; by default that of ``step_counter``.

        Raises:
            UnsupportedError: There is no step.
            CoordinationError: One of several processes did not answer, or asked about another step.

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
                    remedy="pass the number of the training step",
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

        With several processes, all of them call this with the same step, and a signal to one process counts for all.

        Args:
            step: The training step. A signal that arrived after `should_save` was called for this step does not count yet, so a loop
                that ends here has saved. By default, every signal until now counts.

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

    def close(self) -> None:
        """Waits for the asynchronous save in progress, raises its error, and stops catching SIGTERM.

        If SIGTERM was received, this calls the handler that the program had installed before. The manager can still be used.
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
        """Calls `close`. If the block has failed, its error is raised, and an error of a save is added to it as a note.

        After ``sys.exit()`` in the block, too, a signal that has come is passed on to the handler of the program.
        """
        if error is None:
            self.close()
            return
        try:
            self.sync()
        except Exception as other:  # the error of the block is raised
            error.add_note(f"In addition, an asynchronous save failed: {type(other).__name__}: {other}")
        finally:
            self._stop_catching(pass_on=isinstance(error, SystemExit))

    def _stop_catching(self, *, pass_on: bool) -> None:
        if self._series.signal is not None:
            self._series.signal.remove(pass_on=pass_on)

    def _agreed(self, step: int | None) -> Agreed:
        """The facts about a step on which all processes agree. They exchange messages once for each step."""
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
