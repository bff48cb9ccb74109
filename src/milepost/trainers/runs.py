"""The manager of a trainer's run: when to save, what to keep, what to resume."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from milepost.checkpoint import Checkpoint
from milepost.engine.options import CheckpointOptions, resolved
from milepost.manager import CheckpointManager
from milepost.retention import Policy
from milepost.trainers.whole_state import WholeState, members

PathLike = str | os.PathLike[str]


class TrainerRun:
    """Saves the whole state of a run in a series of checkpoints.

    The manager is made when the run begins, so that SIGTERM is caught only while it lasts.

    Args:
        directory: The directory of the checkpoints.
        names: The members that every saved state has. Of several processes, the first one saves them.
        own_names: Further members, which each process has for itself.
        max_to_keep: How many of the newest checkpoints to keep, or None to let ``keep`` decide alone.
        keep: Which checkpoints to keep beside them: policies of `milepost.retention`.
        every_steps: Steps between two saves, or None.
        every_seconds: Seconds between two saves, or None.
        on_sigterm: Whether SIGTERM saves and ends the run.
        options: Options of all saves and restores.
    """

    def __init__(
        self,
        directory: PathLike,
        names: tuple[str, ...],
        own_names: tuple[str, ...] = (),
        *,
        max_to_keep: int | None = 3,
        keep: Policy | None = None,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        on_sigterm: bool = False,
        options: CheckpointOptions | None = None,
    ) -> None:
        self.directory = os.fspath(directory)
        self.has_times = every_steps is not None or every_seconds is not None
        self._names = names
        self._own_names = own_names
        self._held = WholeState()
        self._own = WholeState()
        self._checkpoint = Checkpoint(run=self._held, process=self._own)
        options = resolved(options)
        options.first_process = (*options.first_process, "run")
        self._manager: CheckpointManager | None = None
        self._sigterm = on_sigterm

        def make(on_sigterm: bool) -> CheckpointManager:
            return CheckpointManager(
                self._checkpoint,
                self.directory,
                max_to_keep,
                keep=keep,
                every_steps=every_steps,
                every_seconds=every_seconds,
                on_sigterm=on_sigterm,
                options=options,
            )

        self._make = make
        if every_steps is not None or every_seconds is not None:
            for name, value in {"every_steps": every_steps, "every_seconds": every_seconds}.items():
                if value is not None and value <= 0:
                    raise ValueError(f"{name} must be positive or None, not {value}")

    @property
    def manager(self) -> CheckpointManager:
        """The manager of the checkpoints: `CheckpointManager.best_step`, ``pin`` and the like."""
        if self._manager is None:
            self._manager = self._make(False)
        return self._manager

    def begin(self, *, catch: bool = True) -> dict[str, Any] | None:
        """Begins a run, or goes on with it. Returns the state of the newest good checkpoint; None without one.

        Args:
            catch: Whether to catch SIGTERM from now on, if the run does; otherwise `catch` does so.

        Raises:
            CorruptCheckpointError: Every checkpoint is damaged, or the newest good one is not of this trainer.
        """
        self.end()
        self._manager = self._make(self._sigterm and catch)
        try:
            path = self._manager.restore_or_initialize()
            if path is None:
                return None
            found = members(self._held.state, self._names, path)
            return {**found, **members(self._own.state, self._own_names, path)}
        except BaseException:
            self.end()
            raise
        finally:
            self._held.state = self._own.state = None  # the trainer has its own copies from now on

    def catch(self) -> None:
        """Begins to catch SIGTERM, if the run does: after a trainer has installed a handler of its own."""
        if self._sigterm:
            self.end()
            self._manager = self._make(True)

    def is_due(self, step: int) -> bool:
        """Whether to save after this step, by number, clock or SIGTERM."""
        if self.has_times:
            return self.manager.should_save(step)
        return self.manager.reached_preemption(step)

    def must_end(self, step: int) -> bool:
        """Whether SIGTERM has come, so that the run ends after this step."""
        return self.manager.reached_preemption(step)

    def save(
        self, step: int, state: Callable[[], dict[str, Any]], metrics: Mapping[str, Any] | None = None
    ) -> str | None:
        """Saves a state under the number of a step, unless that is saved already with these metrics."""
        if step == self._saved_step() and not metrics:
            return None
        found = state()
        self._own.state = {name: found.pop(name) for name in self._own_names}
        self._held.state = found
        try:
            return self.manager.save(step, metrics=metrics or None)
        finally:
            self._held.state = self._own.state = None

    def end(self) -> None:
        """Waits for an asynchronous save, and no longer catches SIGTERM."""
        if self._manager is not None:
            self._manager.close()

    def _saved_step(self) -> int | None:
        steps = self.manager.steps
        return steps[-1] if steps else None
