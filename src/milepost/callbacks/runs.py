"""Saving and restoring a run of ``fit()``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from milepost.callbacks.averaged import AveragedWeights
from milepost.callbacks.best import Best
from milepost.callbacks.catching_up import CatchingUp
from milepost.callbacks.compiled import compiled, set_rates
from milepost.callbacks.facts import Facts
from milepost.callbacks.generations import Generation
from milepost.callbacks.history import give_back_history, history_of, number
from milepost.callbacks.others import CallbackStates, OtherCallbacks
from milepost.callbacks.random_state import random_state, set_random_state
from milepost.callbacks.sources import Attach
from milepost.callbacks.triggers import EpochTriggers
from milepost.checkpoint.checkpoint import Checkpoint
from milepost.engine.options import CheckpointOptions
from milepost.errors import UnsupportedError, warn
from milepost.graph import Variable
from milepost.graph.adapter import adapter_of
from milepost.manager import CheckpointManager
from milepost.manager.termination import TerminationSignal
from milepost.restoring.status import LoadStatus
from milepost.retention import Policy

Finished = tuple[int, dict[str, Any]]
"""The number of a complete epoch, and its logs."""

_FAR = 1 << 62
"""An epoch that no run has."""


class SavedRun(Generation):
    """The state of a run, and how it is saved and restored."""

    _directory: str
    _options: CheckpointOptions
    _objects: Mapping[str, Any]
    _triggers: EpochTriggers
    _signal: TerminationSignal | None
    _best: Best | None
    _keep_best: int
    _max_to_keep: int | None
    _keep_hours: float | None
    _keep: Policy | None
    _continue_ended: bool
    _others: OtherCallbacks
    _averaged: AveragedWeights
    _compiled: dict[str, Any]
    _rates: dict[str, Any] | None
    _manager: CheckpointManager | None = None
    _best_manager: CheckpointManager | None = None
    _checkpoint: Checkpoint | None = None

    def _open(self) -> str | None:
        """Makes the checkpoint object and its managers, and finds the checkpoint to resume from."""
        model = self.model
        self._facts, self._states = Facts(), CallbackStates()
        self._epoch, self._batch, self._step = (Variable(np.int64(0), name=n) for n in ("epoch", "batch", "step"))
        self._end = self._calls = 0
        self._logs: dict[str, Any] = {}
        self._history_due: dict[str, Any] | None = None
        self._expected_epoch: int | None = None
        self._catching_up: CatchingUp | None = None
        self._place_before: dict[str, Any] | None = None
        self._has_ended = False
        self._checkpoint = Checkpoint(
            model=model,
            optimizer=model.optimizer,
            epoch=self._epoch,
            batch=self._batch,
            step=self._step,
            fit=self._facts,
            callbacks=self._states,
            **self._other_objects(),
            **self._objects,
        )
        self._manager = CheckpointManager(
            self._checkpoint,
            self._directory,
            self._max_to_keep,
            self._keep_hours,
            options=self._options,
            keep=self._keep,
        )
        path = self._manager.latest_checkpoint
        if self._best is not None:
            # A resumed run also continues the series of its best checkpoints, without restoring one of them.
            options = dataclasses.replace(self._options, overwrite=self._options.overwrite or path is not None)
            directory = os.path.join(self._directory, "best")
            self._best_manager = CheckpointManager(self._checkpoint, directory, self._keep_best, options=options)
        return path

    def _save(self, finished: Finished | None = None, best: bool = False) -> None:
        """Saves in the middle of an epoch, or between epochs."""
        checkpoint, manager = self._checkpoint, self._manager
        assert checkpoint is not None
        assert manager is not None
        model = self.model  # on JAX this takes the state back from the trainer
        self._facts.now = {
            "logs": {name: number(value) for name, value in self._logs.items()},
            "history": history_of(model, finished),
            "random": random_state(),
            "best": None if self._best is None else self._best.value,
            "place": None,
            "trainer": self._place_of_trainer() if finished is not None else self._place_before,
            "calls": self._calls,
            "end": self._end,
            "compiled": {**self._compiled, "trainable": compiled(model)["trainable"]},
            "rates": compiled(model)["rates"],
            "callbacks": self._others.names,
            "ended": self._has_ended,
        }
        if self._data is not None:
            if finished is None and not self._data.is_read:
                self._require_data("save in the middle of an epoch", "fit() does not read what resumable() returned")
            self._facts.now["place"] = self._data.place(between_epochs=finished is not None)
            tracked = self._data.tracked()
            if tracked is not None:
                checkpoint.data = tracked
        self._states.now = self._others.state()
        for name, value in {"callbacks": self._states, **self._other_objects()}.items():
            setattr(checkpoint, name, value)
        with nullcontext() if finished is None else self._metrics_kept(at_zero=True):
            managers = [self._best_manager, manager] if best and self._best_manager is not None else [manager]
            if not manager.checkpoints:
                # A run that was killed between its first two saves is resumed, and may save its best epoch again.
                managers.reverse()
            for each in managers:
                each.save(metrics=self._metrics_of(finished) if each is manager else None)
        self._triggers.saved(int(self._step))
        if self._signal is not None and self._signal.received:
            checkpoint.sync()

    def _metrics_of(self, finished: Finished | None) -> dict[str, Any] | None:
        """The metrics by which a policy decides: the logs of a complete epoch. The logs of a part of an epoch are not used."""
        if self._keep is None or finished is None:
            return None
        logs = {name: number(value) for name, value in finished[1].items()}
        return {name: value for name, value in logs.items() if isinstance(value, (int, float))}

    @contextmanager
    def _metrics_kept(self, *, at_zero: bool = False) -> Iterator[None]:
        """Gives metrics back the values that they have now.

        Args:
            at_zero: Whether to reset them before. Between epochs they are saved as the next epoch starts with them: if metrics are
                made only in the first step, their restored values come too late to be reset.
        """
        variables = [variable for metric in self._metrics() for variable in metric.variables]
        values = [_value(variable) for variable in variables]
        try:
            if at_zero:
                self.model.reset_metrics()
            yield
        finally:
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)

    def _resume(self, path: str, has_callbacks: bool) -> None:
        """Restores everything, and makes ``fit()`` continue from there."""
        checkpoint: Any = self._checkpoint
        self._build_optimizer()
        if not has_callbacks:  # as in the first form of such checkpoints
            del checkpoint.callbacks
        stand_in = None if self._data is None else self._data.stand_in()
        if stand_in is not None:  # so that restoration is not deferred until the iterator is made
            checkpoint.data = stand_in
        status = checkpoint.restore(path, self._options).assert_existing_objects_matched()
        batch, epoch, facts = int(self._batch), int(self._epoch), self._facts.now
        end = facts.get("end", batch)
        if end:
            status.expect_partial()  # everything is restored again after the counted batches
            self._make_and_restore(path)
        self._take_back(facts, path, batch)
        if has_callbacks:
            self._others.warn_of_differences(facts["callbacks"])
        self._others.warn_of_new_files()
        if self._continues_from(epoch, path, status) and end:
            self._catching_up = CatchingUp(path, facts.get("calls"), end, facts["logs"])

    def _make_and_restore(self, path: str) -> None:
        """In the middle of an epoch: makes the objects that the first step makes, and restores everything once more."""
        checkpoint: Any = self._checkpoint
        self._require_data("resume in the middle of an epoch")
        if self._make_everything():
            checkpoint.restore(path, self._options).assert_existing_objects_matched().expect_partial()
        for name, value in self._other_objects().items():
            setattr(checkpoint, name, value)

    def _take_back(self, facts: Mapping[str, Any], path: str, batch: int) -> None:
        """Returns to the saved position in the data, and to the saved state that is no value of an object."""
        if self._data is not None and facts["place"] is not None:
            self._data.resume(facts["place"], batch, self._attach_from(path))
        if facts.get("trainer") is not None:
            self._set_place_of_trainer(facts["trainer"])
        self._place_before = facts.get("trainer")
        if self._best is not None:
            self._best.value = facts["best"]
        self._put_back()
        self._history_due = facts["history"]
        self._has_ended = facts.get("ended", False) and not self._continue_ended

    def _continues_from(self, epoch: int, path: str, status: LoadStatus) -> bool:
        """Makes ``fit()`` continue at an epoch. False if it trains nothing more, because another callback has ended the run."""
        checkpoint: Any = self._checkpoint
        epochs = (self.params or {}).get("epochs", _FAR)
        if epoch >= epochs and self._make_for_the_end():
            checkpoint.restore(path, self._options)
        if self._has_ended or epoch >= epochs:
            status.expect_partial()  # no step makes what the optimizer and metrics lack
        if self._has_ended and epoch < epochs:
            warn(
                f"another callback ended this run after epoch {epoch} of {epochs}, so fit() trains nothing and returns its "
                "history: to continue, pass continue_ended=True to CheckpointCallback, or start a run in another directory"
            )
            self.model.stop_training = True
            self._continue_at_epoch(_FAR)
            return False
        if epoch >= epochs:
            self._averaged.finish()
        self._expected_epoch = epoch
        self._continue_at_epoch(epoch)
        return True

    def _restore_again(self) -> None:
        """Restores everything a second time, after the steps that are already trained."""
        assert self._checkpoint is not None
        assert self._catching_up is not None
        path, self._catching_up = self._catching_up.path, None
        _ = self.model
        self._checkpoint.restore(path, self._options).assert_existing_objects_matched()
        self._put_back()
        self._after_restoring_between_steps()
        if self._data is not None:
            self._data.caught_up()
        self._after_step()

    def _put_back(self) -> None:
        """Restores the state that is saved as plain data."""
        facts = self._facts.now
        self._others.put_back(self._states.now)
        if self._rates is not None:
            set_rates(self.model.optimizer, self._rates)
        self._end, self._calls = facts.get("end", int(self._batch)), facts.get("calls", 0)
        set_random_state(facts["random"])

    def _give_back_history(self) -> None:
        due, self._history_due = self._history_due, None
        if due is not None:
            give_back_history(self.model, due)

    def _metrics(self) -> list[Any]:
        return list(self.model.metrics)

    def _attach_from(self, path: str) -> Attach:
        def attach(tracked: Any) -> None:
            Checkpoint(data=tracked).read(path, self._options).expect_partial()

        return attach

    def _require_data(self, what: str, problem: str = "fit() was not given data whose position can be saved") -> None:
        if self._data is None or problem.startswith("fit() does not"):
            raise UnsupportedError(
                f"cannot {what}: {problem}",
                expected="fit(callback.resumable(x, y), callbacks=[callback])",
                found="other data",
                remedy="pass what resumable() returns to fit(), or save with every_epochs only",
            )


def _value(variable: Any) -> np.ndarray[Any, Any]:
    adapter = adapter_of(variable)
    assert adapter is not None, "variables of Keras are trackable"
    return np.array(adapter.values(variable)[0].read())
