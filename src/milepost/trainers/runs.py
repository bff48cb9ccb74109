"""The manager of a trainer's run: when to save, what to keep, what to resume."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from milepost.checkpoint.checkpoint import Checkpoint
from milepost.engine.options import CheckpointOptions, resolved
from milepost.errors import ArgumentError, MismatchError
from milepost.manager import CheckpointManager
from milepost.manager.arguments import check_interval, check_times
from milepost.manager.committed import check_hook
from milepost.manager.finite_policy import finite_policy
from milepost.manager.signals.termination import Signals, termination_signal
from milepost.manager.tolerance import policy_of
from milepost.saving.files import Source, check_files
from milepost.series.series import split_number
from milepost.trainers.whole_state import WholeState, members

PathLike = str | os.PathLike[str]

_OWN_NAMES: Final = ("process", "run", "save_counter")
_OBJECTS: Final = "names of objects"
"""The member of a saved state that has the names of the further objects."""


class TrainerRun:
    """Saves the whole state of a run in a series of checkpoints.

    The manager is made when the run begins, so that signals are caught only during the run.

    Args:
        directory: The directory of the checkpoints.
        names: The members that every saved state has. With several processes, process 0 saves them.
        own_names: Further members, which each process saves for itself.
        every_epochs: Epochs between two saves, or None.
        on_sigterm: Whether SIGTERM saves and ends the run.
        on_signal: Other signals that do.
        grace_seconds: Seconds after the signal, after which the process ends.
        objects: Further objects to save, by name.
        files: Small files to save with each checkpoint, as for `CheckpointManager.save`. They are read at each save.
        options: Options of all saves and restores.
        **settings: When else to save, and what to keep: arguments of `CheckpointManager`.

    Raises:
        UnsupportedError: An argument has a type that is not accepted.
        ArgumentError: A ``ValueError``: an interval is not greater than 0.
    """

    def __init__(
        self,
        directory: PathLike,
        names: tuple[str, ...],
        own_names: tuple[str, ...] = (),
        *,
        every_epochs: int | None = None,
        on_sigterm: bool = False,
        on_signal: Signals = None,
        grace_seconds: float | None = None,
        objects: Mapping[str, Any] | None = None,
        files: Mapping[str, Source] | None = None,
        options: CheckpointOptions | None = None,
        **settings: Any,
    ) -> None:
        every_steps, every_seconds = settings.get("every_steps"), settings.get("every_seconds")
        check_interval("every_epochs", every_epochs)
        check_times(settings.get("keep"), every_steps, every_seconds)
        policy_of(settings.get("on_failure", "raise"))
        finite_policy(settings.get("nonfinite"))
        check_hook(settings.get("on_committed"))
        check_files(files)
        self._files = files
        self.directory = os.fspath(directory)
        self.has_times = every_steps is not None or every_seconds is not None
        self._every_epochs = every_epochs
        self._names = names
        self._own_names = own_names
        self._held = WholeState()
        self._own = WholeState()
        self._objects = dict(objects or {})
        _check_names(self._objects)
        self._checkpoint = Checkpoint(run=self._held, process=self._own, **self._objects)
        self._path: str | None = None
        options = resolved(options)
        options.first_process = (*options.first_process, "run")
        self._options = options
        self._manager: CheckpointManager | None = None
        self._saved_step: int | None = None
        termination_signal(on_sigterm, on_signal, grace_seconds)  # raises an error for wrong arguments
        catch: dict[str, Any] = {"on_sigterm": on_sigterm, "on_signal": on_signal, "grace_seconds": grace_seconds}
        self._catch = catch if on_sigterm or on_signal is not None else {}
        self._make = partial(CheckpointManager, self._checkpoint, self.directory, options=options, **settings)

    @property
    def manager(self) -> CheckpointManager:
        """The manager of the checkpoints: `CheckpointManager.best_step`, ``pin`` and the like."""
        if self._manager is None:
            self._manager = self._make()
        return self._manager

    def begin(self, *, catch: bool = True) -> dict[str, Any] | None:
        """Begins or continues a run. Returns the state of the newest good checkpoint, or None if there is none.

        Args:
            catch: Whether to catch the signals from now on, if the run does; otherwise `catch` does so.

        Raises:
            CorruptCheckpointError: Every checkpoint is damaged, or the newest good one is not of this trainer.
            MismatchError: It was saved with other objects.
        """
        self.end()
        self._manager = self._make(**(self._catch if catch else {}))
        try:
            path = self._path = self._manager.restore_or_initialize()
            self._saved_step = None
            if path is None:
                return None
            self._saved_step = (split_number(path) or ("", None))[1]
            values = members(self._held.state, self._names, path)
            _must_be_saved_with(values.pop(_OBJECTS, []), self._objects, path)
            return {**values, **members(self._own.state, self._own_names, path)}
        except BaseException:
            self.end()
            raise
        finally:
            self._held.state = self._own.state = None  # the trainer has its own copies from now on

    def restore_objects(self) -> None:
        """Restores the further objects once more. Call it after the trainer has made all that may have changed them."""
        if self._objects and self._path is not None:
            Checkpoint(**self._objects).read(self._path, self._options).expect_partial()

    def catch(self) -> None:
        """Begins to catch the signals, if there are any. Call it after the trainer has installed its own handler."""
        if self._catch:
            self.end()
            self._manager = self._make(**self._catch)

    def is_due(self, step: int) -> bool:
        """Whether to save after this step, by number, clock or signal."""
        if self.has_times:
            return self.manager.should_save(step)
        return self.manager.reached_preemption(step)

    def is_due_after(self, epochs: int) -> bool:
        """Whether to save after this number of whole epochs."""
        return self._every_epochs is not None and epochs % self._every_epochs == 0

    def must_end(self, step: int) -> bool:
        """Whether a signal has come, so that the run ends after this step."""
        return self.manager.reached_preemption(step)

    def save(
        self,
        step: int,
        state: Callable[[], dict[str, Any]],
        metrics: Mapping[str, Any] | None = None,
        *,
        again: bool = False,
    ) -> str | None:
        """Saves a state under the number of a step, unless that is saved already with these metrics.

        Args:
            step: The step.
            state: Returns the state.
            metrics: The metrics of the checkpoint, if there are any.
            again: Whether the state differs from that which may be saved already.
        """
        if step == self._saved_step and not metrics and not again and not self.manager.health.failures:
            return None
        values = state()
        self._own.state = {name: values.pop(name) for name in self._own_names}
        self._held.state = {**values, **({_OBJECTS: sorted(self._objects)} if self._objects else {})}
        try:
            path = self.manager.save(step, metrics=metrics or None, files=self._files)
        finally:
            self._held.state = self._own.state = None
        if path is not None:
            self._saved_step = step
        return path

    def end(self) -> None:
        """Waits for an asynchronous save, and stops catching signals."""
        if self._manager is not None:
            self._manager.close()


def _check_names(objects: Mapping[str, Any]) -> None:
    reserved = sorted(set(objects) & set(_OWN_NAMES))
    if reserved:
        raise ArgumentError(
            "these names in objects= are those of other parts of the checkpoint",
            expected="other names",
            found=", ".join(reserved),
            remedy="give the objects other names",
        )


def _must_be_saved_with(saved: list[str], objects: Mapping[str, Any], path: str) -> None:
    if list(saved) != sorted(objects):
        raise MismatchError(
            "this run was saved with other objects",
            file=path,
            expected=f"objects= with {', '.join(saved)}" if saved else "no objects=",
            found=", ".join(sorted(objects)) or "no objects=",
            remedy="pass the same objects=, or use another directory",
        )
