"""One run of ``fit()``: where it is, what is saved of it, and how it is restored."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from milepost.callbacks.averaged import AveragedWeights
from milepost.callbacks.catching_up import CatchingUp
from milepost.callbacks.compiled import compiled, must_train_the_same, note_rates, rates_to_take, set_rates
from milepost.callbacks.data.feed import Data
from milepost.callbacks.data.sources import Attach
from milepost.callbacks.facts import Facts, facts_in, give_back_history, history_of, number
from milepost.callbacks.fit import FitCall
from milepost.callbacks.generations import Generation
from milepost.callbacks.monitored import BestValue
from milepost.callbacks.others import CallbackStates, OtherCallbacks
from milepost.callbacks.plain_data import random_state, set_random_state
from milepost.checkpoint.checkpoint import Checkpoint
from milepost.engine.options import CheckpointOptions
from milepost.errors import MismatchError, UnsupportedError, warn
from milepost.graph import Variable
from milepost.graph.adapter import adapter_of
from milepost.manager import CheckpointManager
from milepost.manager.checkpoint_manager import note_restored, path_to_restore
from milepost.manager.committed import OnCommitted
from milepost.manager.finite_policy import KeepLastFinite
from milepost.manager.tolerance import Tolerate
from milepost.retention import Policy
from milepost.saving.files import Source

Finished = tuple[int, dict[str, Any]]
"""The number of a complete epoch, and its logs."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunSettings:
    """The arguments of the callback that say what is saved and where; see `milepost.keras.CheckpointCallback`."""

    directory: str
    keep_best: int
    max_to_keep: int | None
    keep_hours: float | None
    keep: Policy | None
    learning_rate: str | None
    continue_ended: bool
    objects: Mapping[str, Any]
    tolerate: Tolerate | None
    finite: KeepLastFinite | None
    on_committed: OnCommitted | None
    files: Mapping[str, Source] | None
    options: CheckpointOptions


class SavedRun:
    """The state of a run during one call of ``fit()``.

    Args:
        settings: What is saved and where.
        call: The call.
        generation: The Keras that runs it.
        data: The data, if its position is saved.
        best: The metric whose best epochs are kept too, if there is one.

    Attributes:
        manager: The manager of the checkpoints.
        best_manager: That of the best epochs, or None.
        path: The checkpoint from which the run is resumed, or None.
        is_first_step: Whether no step has been trained in this call.
        has_ended: Whether another callback has ended the run.
        catching_up: The steps that are not trained again, while ``fit()`` counts through them.

    Raises:
        MismatchError: The data or the settings of the model are not those of the run.
    """

    def __init__(
        self, settings: RunSettings, call: FitCall, generation: Generation, data: Data | None, best: BestValue | None
    ) -> None:
        self._settings, self._generation, self._data, self._best = settings, generation, data, best
        self.call, self.net = call, call.model
        self._facts, self._states = Facts(), CallbackStates()
        self.epoch, self.batch, self.step = (Variable(np.int64(0), name=n) for n in ("epoch", "batch", "step"))
        self.checkpoint: Any = Checkpoint(
            model=self.net,
            optimizer=self.net.optimizer,
            epoch=self.epoch,
            batch=self.batch,
            step=self.step,
            fit=self._facts,
            callbacks=self._states,
            **generation.other_objects(self.net),
            **settings.objects,
        )
        self.manager = CheckpointManager(
            self.checkpoint,
            settings.directory,
            settings.max_to_keep,
            settings.keep_hours,
            options=settings.options,
            keep=settings.keep,
            on_failure=settings.tolerate or "raise",
            nonfinite=settings.finite,
            on_committed=settings.on_committed,
        )
        self.path = path_to_restore(self.manager)
        self.best_manager: CheckpointManager | None = None
        if best is not None:
            # A resumed run also continues the series of its best checkpoints, without restoring one of them.
            overwrite = settings.options.overwrite or self.path is not None
            options = dataclasses.replace(settings.options, overwrite=overwrite)
            directory = os.path.join(settings.directory, "best")
            self.best_manager = CheckpointManager(
                self.checkpoint,
                directory,
                settings.keep_best,
                options=options,
                on_failure=settings.tolerate or "raise",
                on_committed=settings.on_committed,
            )
        self.is_first_step = True
        self.has_ended = False
        self.catching_up: CatchingUp | None = None
        self.logs: dict[str, Any] = {}
        self._end = self._calls = 0
        self._usual: int | None = None
        self._is_out_of_data = False
        self._history_due: dict[str, Any] | None = None
        self._expected_epoch: int | None = None
        self._rates: dict[str, Any] | None = None
        self._saved, self._first_epoch = ({}, 0) if self.path is None else facts_in(self.path, settings.options)
        self._check()

    @property
    def model(self) -> Any:
        """The model in its present state."""
        return self._generation.current(self.net)

    @property
    def steps(self) -> int | None:
        """The number of steps in an epoch, if it is known."""
        return self._params.get("steps")

    @property
    def is_of_unknown_length(self) -> bool:
        """Whether nobody knows how many batches a pass has."""
        return self.steps is None if self._data is None else self._data.length is None

    @property
    def metrics(self) -> list[Any]:
        """The metrics of the model."""
        return list(self.model.metrics)

    def _check(self) -> None:
        """Checks that this call continues the saved run, before anything is changed."""
        program = compiled(self.net)
        self._compiled = self._saved.get("compiled") or program
        position = self._saved.get("place")
        if self._data is not None:
            if position is not None:
                self._check_data(self._data, position)
            self._data.start(self._generation.steps(self.call), (position or {}).get("usual"))
        if self.path is None:
            return
        if "compiled" in self._saved:
            choice, optimizer = self._settings.learning_rate, self.net.optimizer
            self._rates = rates_to_take(self._compiled, self._saved["rates"], program, optimizer, choice, self.path)
            if self._rates is not None:
                self._compiled = {**self._compiled, "rates": self._rates}
        initial_epoch = self.call.arguments.get("initial_epoch", 0)
        if initial_epoch > self._first_epoch:
            raise MismatchError(
                "fit() would start at an epoch that this run has not reached; nothing was trained",
                file=self.path,
                expected=f"initial_epoch of at most {self._first_epoch}",
                found=initial_epoch,
                remedy="do not pass initial_epoch, or train this phase in another directory",
            )
        self.call.arguments["initial_epoch"] = self._first_epoch
        self.has_ended = self._saved.get("ended", False) and not self._settings.continue_ended
        trainer = self._saved.get("trainer") or {}
        self._usual, self._is_out_of_data = trainer.get("length"), trainer.get("is over", False)
        if self.has_ended or self._is_out_of_data:
            self.call.arguments["initial_epoch"] = max(self._first_epoch, self.call.arguments.get("epochs", 0))

    def _check_data(self, data: Data, position: dict[str, Any]) -> None:
        try:
            data.check(position)
        except MismatchError as error:
            raise error.with_context(file=self.path) from None

    def begin(self, params: Mapping[str, Any] | None) -> None:
        """Begins or resumes the run, after all other callbacks have begun.

        Args:
            params: What Keras tells callbacks.
        """
        self._params = params or {}
        self._generation.check(self.call, self._data)
        self._others = OtherCallbacks(self.call.others)
        self._averaged = AveragedWeights(self.call.others)
        if self.path is not None:
            self._resume(self.path, "callbacks" in self._saved)
            return
        self.manager.restore_or_initialize()  # raises if there are checkpoints, and none is good
        if self._data is not None:
            self._data.rewind()

    def begin_epoch(self, epoch: int) -> None:
        """Records that an epoch begins.

        Raises:
            MismatchError: It is not that at which the run was saved.
        """
        if self._expected_epoch not in (None, epoch):
            raise MismatchError(
                "fit() does not start at the epoch at which this run was saved",
                file=self.path,
                expected=self._expected_epoch,
                found=epoch,
                remedy="do not pass initial_epoch, or use another directory",
            )
        self._expected_epoch = None
        self.give_back_history()
        self._averaged.hold(epoch, self._params.get("epochs", 0))
        self.epoch.assign(epoch)
        if self.catching_up is None:
            self.batch.assign(0)
            self._end = self._calls = 0
            note_rates(self.model)
        if self._data is not None:
            self._data.begin_epoch()

    def before_step(self) -> None:
        """Records that a step begins."""
        self._generation.before_step(self)

    def after_step(self, batch: int) -> None:
        """Counts the batches of a step that was trained.

        Args:
            batch: The last batch of the step, as Keras counts.
        """
        counted = self._generation.batches_run(self, batch + 1 - self._end)
        if self._data is not None:
            trained = self._data.trained(counted)
        else:
            trained = counted if self.steps is None else max(0, min(counted, self.steps - self._end))
        self._end = batch + 1
        self._calls += 1
        self.batch.assign_add(trained)
        self.step.assign_add(trained)
        self._generation.after_step(self)

    def check_first_step(self) -> None:
        """Checks what is known only after a model's first step.

        Raises:
            MismatchError: Other variables are trained than when the run was saved.
        """
        self.is_first_step = False
        if self.path is not None and self._compiled["trainable"] is not None:
            must_train_the_same(self._compiled, compiled(self.model), self.path)

    @property
    def ends_epoch_early(self) -> bool:
        """Whether the epoch must end with the last step, because the pass over the data has ended."""
        return self._data is not None and self._data.ends_epochs and self._data.is_over and not self._is_at_steps

    @property
    def is_last_step(self) -> bool:
        """Whether the last step was that of its epoch. False if that is not known."""
        is_over = self._data is not None and self._data.is_over
        return is_over or self._is_at_steps or (self._usual is not None and self._end >= self._usual)

    @property
    def _is_at_steps(self) -> bool:
        return bool(self.steps and self._end >= self.steps)

    def end_epoch(self, epoch: int, has_ended: bool) -> None:
        """Records that the steps of an epoch are over.

        Args:
            epoch: The epoch.
            has_ended: Whether another callback has ended the run.
        """
        self._generation.after_epoch(self)
        if self.steps is None:
            self._usual = self._usual or self._end
        self._is_out_of_data = (
            self._generation.ends_with_data and bool(self.steps) and not self._is_at_steps and not has_ended
        )
        self.logs = {}
        self.epoch.assign(epoch + 1)
        self.batch.assign(0)
        self._end = self._calls = 0
        self.has_ended = has_ended

    def after_epoch(self) -> None:
        """Called at the end of each epoch, whether it was complete or not."""
        self._averaged.let_go()
        note_rates(self.model)

    def end(self) -> None:
        """Called at the end of training."""
        self.give_back_history()
        note_rates(self.model)
        for each in filter(None, (self.manager, self.best_manager)):
            each.sync()

    def save(self, finished: Finished | None = None, best: bool = False) -> None:
        """Saves in the middle of an epoch, or between epochs.

        Args:
            finished: The epoch that is complete, or None in the middle of an epoch.
            best: Whether it is the best so far.
        """
        model = self.model  # on JAX this takes the state back from the trainer
        self._facts.now = {
            "logs": {name: number(value) for name, value in self.logs.items()},
            "history": history_of(model, finished),
            "random": random_state(),
            "best": None if self._best is None else self._best.value,
            "place": None,
            "trainer": {"length": self._usual, "is over": self._is_out_of_data},
            "calls": self._calls,
            "end": self._end,
            "compiled": {**self._compiled, "trainable": compiled(model)["trainable"]},
            "rates": compiled(model)["rates"],
            "callbacks": self._others.names,
            "ended": self.has_ended,
        }
        if self._data is not None:
            if finished is None and not self._data.is_read:
                raise without_data("save in the middle of an epoch", "fit() does not read what resumable() returned")
            self._facts.now["place"] = self._data.place(between_epochs=finished is not None)
            tracked = self._data.tracked()
            if tracked is not None:
                self.checkpoint.data = tracked
        self._states.now = self._others.state()
        self._attach_others(callbacks=self._states)
        with nullcontext() if finished is None else self.metrics_kept(at_zero=True):
            managers = [self.manager] if not best or self.best_manager is None else [self.best_manager, self.manager]
            if not self.manager.checkpoints:
                # A run that was killed between its first two saves is resumed, and may save its best epoch again.
                managers.reverse()
            for each in managers:
                metrics = self._metrics_of(finished) if each is self.manager else None
                each.save(metrics=metrics, files=self._settings.files)

    def _attach_others(self, **objects: Any) -> None:
        for name, value in {**objects, **self._generation.other_objects(self.net)}.items():
            setattr(self.checkpoint, name, value)

    def _metrics_of(self, finished: Finished | None) -> dict[str, Any] | None:
        """The metrics by which a policy decides: the logs of a complete epoch. The logs of a part of an epoch are not used."""
        if self._settings.keep is None or finished is None:
            return None
        logs = {name: number(value) for name, value in finished[1].items()}
        return {name: value for name, value in logs.items() if isinstance(value, (int, float))}

    @contextmanager
    def metrics_kept(self, *, at_zero: bool = False) -> Iterator[None]:
        """Gives metrics back the values that they have now.

        Args:
            at_zero: Whether to reset them before. Between epochs they are saved as the next epoch starts with them: if metrics are
                made only in the first step, their restored values come too late to be reset.
        """
        variables = [variable for metric in self.metrics for variable in metric.variables]
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
        checkpoint, options = self.checkpoint, self._settings.options
        self._generation.build_optimizer(self.model)
        if not has_callbacks:  # as in the first form of such checkpoints
            del checkpoint.callbacks
        stand_in = None if self._data is None else self._data.stand_in()
        if stand_in is not None:  # so that restoration is not deferred until the iterator is made
            checkpoint.data = stand_in
        status = checkpoint.restore(path, options).assert_existing_objects_matched()
        note_restored(self.manager, path)
        batch, epoch, facts = int(self.batch), int(self.epoch), self._facts.now
        end = facts.get("end", batch)
        if end:
            status.expect_partial()  # everything is restored again after the counted batches
            self._make_and_restore(path)
        self._take_back(facts, path, batch)
        if has_callbacks:
            self._others.warn_of_differences(facts["callbacks"])
        self._others.warn_of_new_files()
        epochs = self._params.get("epochs", epoch + 1)
        if epoch >= epochs and self._generation.make_for_the_end(self.net, self._data):
            checkpoint.restore(path, options)
        if self.has_ended or self._is_out_of_data or epoch >= epochs:
            status.expect_partial()  # no step makes what the optimizer and metrics lack
        self._generation.start_at(self.net, self.call.arguments.get("initial_epoch", epoch))
        if epoch >= epochs:
            self._averaged.finish()
        elif self.has_ended:
            warn(
                f"another callback ended this run after epoch {epoch} of {epochs}, so fit() trains nothing and returns its "
                "history: to continue, pass continue_ended=True to CheckpointCallback, or start a run in another directory"
            )
            self.net.stop_training = True
        elif not self._is_out_of_data:
            self._expected_epoch = epoch
            if end:
                self.catching_up = CatchingUp(path, facts.get("calls"), end, facts["logs"])

    def _make_and_restore(self, path: str) -> None:
        """In the middle of an epoch: makes the objects that the first step makes, and restores everything once more."""
        if self._data is None:
            raise without_data("resume in the middle of an epoch")
        if self._generation.make_everything(self.net, self._data):
            status = self.checkpoint.restore(path, self._settings.options)
            status.assert_existing_objects_matched().expect_partial()
        self._attach_others()

    def _take_back(self, facts: Mapping[str, Any], path: str, batch: int) -> None:
        """Returns to the saved position in the data, and to the saved state that is no value of an object."""
        if self._data is not None and facts["place"] is not None:
            self._data.resume(facts["place"], batch, self._attach_from(path))
        if self._best is not None:
            self._best.value = facts["best"]
        self._put_back()
        self._history_due = facts["history"]

    def restore_again(self) -> None:
        """Restores everything a second time, after the steps that are already trained."""
        assert self.catching_up is not None
        path, self.catching_up = self.catching_up.path, None
        _ = self.model
        self.checkpoint.restore(path, self._settings.options).assert_existing_objects_matched()
        self._put_back()
        self._generation.after_restoring_between_steps(self.net)
        if self._data is not None:
            self._data.caught_up()
        self._generation.after_step(self)

    def _put_back(self) -> None:
        """Restores the state that is saved as plain data."""
        facts = self._facts.now
        self._others.put_back(self._states.now)
        if self._rates is not None:
            set_rates(self.net.optimizer, self._rates)
        self._end, self._calls = facts.get("end", int(self.batch)), facts.get("calls", 0)
        set_random_state(facts["random"])

    def give_back_history(self) -> None:
        """Gives the history of earlier calls to the model, once Keras has emptied it."""
        due, self._history_due = self._history_due, None
        if due is not None:
            give_back_history(self.net, due)

    def _attach_from(self, path: str) -> Attach:
        def attach(tracked: Any) -> None:
            Checkpoint(data=tracked).read(path, self._settings.options).expect_partial()

        return attach


def without_data(what: str, problem: str = "fit() was not given data whose position can be saved") -> UnsupportedError:
    """The error for what is possible only with data from ``resumable()``."""
    return UnsupportedError(
        f"cannot {what}: {problem}",
        expected="fit(callback.resumable(x, y), callbacks=[callback])",
        found="other data",
        remedy="pass what resumable() returns to fit(), or save with every_epochs only",
    )


def _value(variable: Any) -> np.ndarray[Any, Any]:
    adapter = adapter_of(variable)
    assert adapter is not None, "variables of Keras are trackable"
    return np.array(adapter.values(variable)[0].read())
