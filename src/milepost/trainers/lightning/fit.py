"""One run of ``Trainer.fit()`` of Lightning that is saved and continued."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from milepost.adapters.lightning import private, results
from milepost.adapters.lightning.averaging import set_up_averaging
from milepost.adapters.lightning.loaders import begin_like_others, let_iterators_be_made
from milepost.adapters.lightning.steps import observe
from milepost.adapters.random_state import global_state, set_global_state
from milepost.trainers import gradients
from milepost.trainers.lightning.dicts import RUN
from milepost.trainers.lightning.loaders import RunLoaders
from milepost.trainers.lightning.modes import modes, set_modes
from milepost.trainers.runs import TrainerRun


class ResumableFit:
    """Saves a run when all that belongs to a batch or an epoch is done, and continues it from there.

    Args:
        trainer: The trainer, before Lightning has restored anything.
        run: When to save, and where.
        saved: The state to continue from, or None.
    """

    def __init__(self, trainer: Any, run: TrainerRun, saved: dict[str, Any] | None) -> None:
        self._trainer = trainer
        self._run = run
        self._saved = saved
        self._loaders = RunLoaders(trainer, saved and saved["loaders"])
        self._is_due = self._is_left = self._has_begun = False
        self.was_terminated = False
        self.has_new_metrics = False
        if saved is not None:
            private.give(trainer, saved[RUN])
            trainer.should_stop = bool(saved.get("stopped"))
        self._release = observe(trainer, self)

    def begin(self) -> None:
        """Begins to save. Runs with which other callbacks try settings come before."""
        self._run.catch()
        self._has_begun = True

    def end(self) -> None:
        """Waits for an asynchronous save, stops catching SIGTERM, and releases loaders."""
        self._release()
        self._loaders.forget()
        self._run.end()

    def loaders(self, kind: str, loop: Any) -> AbstractContextManager[None]:
        """Surrounds the making of loaders."""
        return self._loaders.being_made(kind, loop)

    def before_iterators(self, loaders: list[Any]) -> None:
        """Records the loaders of an epoch before they are read."""
        self._loaders.watch(loaders)

    def before_epoch(self) -> None:
        """Saves the end of the previous epoch, or continues from there."""
        if not self._has_begun:
            return
        if self._saved is not None:
            if _is_between(self._saved):
                self._arrive(within=False)
            return
        self._is_due |= self._run.is_due_after(self._trainer.current_epoch) and _batches(self._trainer) > 0
        if self._is_due:
            self._save(ended=True)
        if self.was_terminated:
            self._leave()

    def before_batches(self) -> None:
        """Continues within an epoch."""
        if self._has_begun and self._saved is not None:
            self._arrive(within=True)

    def after_batch(self) -> None:
        """Saves if a save is due. After the last batch of an epoch, the end of the epoch is saved."""
        if not self._has_begun:
            return
        step = _batches(self._trainer)
        self._is_due |= self._run.is_due(step)
        self.was_terminated |= self._run.must_end(step)
        if private.epoch_ends(self._trainer):
            return
        if self._is_due:
            self._save()
        if self.was_terminated:
            self._leave()

    def after_batches(self) -> None:
        """Leaves out the hooks for the end of an epoch that has not ended."""
        if self._is_left:
            self._leave()

    def after_run(self) -> None:
        """Saves the end of the run."""
        if not self._has_begun:
            return
        if not self._is_left:
            self.was_terminated |= self._run.must_end(_batches(self._trainer))
            self._save(ended=True)
        self.end()

    def after_fit(self) -> None:
        """Restores what a run shows that had ended already. Lightning enters no loop for it."""
        saved, self._saved = self._saved, None
        if saved is not None:
            self._show(saved)
            set_global_state(saved["random"])
        self.end()

    def _leave(self) -> None:
        self._is_left = True
        raise StopIteration

    def _arrive(self, *, within: bool) -> None:
        """Restores the parts that Lightning does not restore, or not at this moment."""
        assert self._saved is not None
        saved, self._saved = self._saved, None
        trainer, module = self._trainer, self._trainer.lightning_module
        self._show(saved)
        if saved.get("gradients"):
            gradients.set_gradients(module, saved["gradients"])
        set_up_averaging(trainer, within=within)
        if within:
            results.set_results(trainer, saved.get("logged", {}))
            private.set_progress(trainer, saved.get("progress", {}))
            begin_like_others(trainer)
        else:
            let_iterators_be_made(trainer)
        self._loaders.arrive(saved["random"], within=within)
        set_global_state(saved["random"])

    def _show(self, saved: dict[str, Any]) -> None:
        module = self._trainer.lightning_module
        private.set_metric_states(module, saved.get("metrics", {}))
        set_modes(module, saved.get("modes", {}))
        results.show_metrics(self._trainer, saved.get("shown", {}))

    def _save(self, *, ended: bool = False) -> None:
        trainer = self._trainer
        metrics = {}
        if self.has_new_metrics or (ended and not trainer.enable_validation):
            metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        self._run.save(_batches(trainer), lambda: self._state(ended), metrics)
        self._is_due = self.has_new_metrics = False

    def _state(self, ended: bool) -> dict[str, Any]:
        trainer, module = self._trainer, self._trainer.lightning_module
        return {
            RUN: private.without_loaders(private.dumped(trainer)),
            "epochs": trainer.current_epoch,
            "between": ended,
            "metrics": private.metric_states(module),
            "modes": modes(module),
            "shown": results.shown_metrics(trainer),
            "logged": {} if ended else results.results(trainer),
            "progress": {} if ended else private.progress(trainer),
            "gradients": gradients.gradients_of(module) if private.is_accumulating(trainer) else {},
            "stopped": bool(trainer.should_stop),
            "random": global_state(),
            "loaders": self._loaders.state(ended=ended),
        }


def _batches(trainer: Any) -> int:
    """The number of batches of the whole run."""
    return int(trainer.fit_loop.total_batch_idx) + 1


def _is_between(saved: dict[str, Any]) -> bool:
    """Whether a state is that of the end of an epoch."""
    if "between" in saved:
        return bool(saved["between"])
    return all(each["kind"] != "within" for each in saved["loaders"])  # saved by version 0.1
