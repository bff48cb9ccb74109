"""What a run of ``fit()`` consists of, when it is saved, and how it is taken up again in another process.

A run is saved at one of two places: in ``on_epoch_end``, or in ``on_train_batch_end``. It is taken up at the same place.
In the middle of an epoch this means that ``fit()`` counts through the batches that were trained already, without reading
or training them, and that everything is restored at the end of the last of them. Callbacks see those batches again, so
that what counts batches counts right; whatever they do to model and optimizer meanwhile is overwritten.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from milepost.callbacks.best import Best
from milepost.callbacks.feed import Data
from milepost.callbacks.nested import from_json, to_json
from milepost.callbacks.random_state import random_state, set_random_state
from milepost.callbacks.resumable import Trainer, make_feed
from milepost.callbacks.sources import Attach
from milepost.callbacks.triggers import TerminationSignal, Triggers
from milepost.checkpoint import Checkpoint
from milepost.engine.options import CheckpointOptions, resolved
from milepost.errors import MismatchError, UnsupportedError
from milepost.graph import PythonState, Variable
from milepost.graph.adapter import adapter_of
from milepost.manager import CheckpointManager
from milepost.storage.paths import plain_path

PathLike = str | os.PathLike[str]
_RESERVED = ("batch", "data", "epoch", "fit", "metrics", "model", "optimizer", "seed", "step")


class Facts(PythonState):
    """What a run consists of beside objects: logs, history, random state, the place in the data."""

    def __init__(self) -> None:
        self.now: dict[str, Any] = {}

    def serialize(self) -> str:
        return to_json(self.now, "fit")

    def deserialize(self, string_value: str) -> None:
        self.now = from_json(string_value)


class FitCheckpoints:
    """The callback, but for the class of Keras that it is derived from; see `milepost.keras.CheckpointCallback`."""

    model: Any
    params: Any

    def __init__(
        self,
        directory: PathLike,
        *,
        every_epochs: int | None = 1,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        on_sigterm: bool = False,
        monitor: str | None = None,
        mode: str = "auto",
        keep_best: int = 1,
        max_to_keep: int | None = 3,
        keep_checkpoint_every_n_hours: float | None = None,
        objects: Mapping[str, Any] | None = None,
        options: CheckpointOptions | None = None,
    ) -> None:
        super().__init__()
        taken = sorted(set(objects or ()) & {*_RESERVED, "save_counter"})
        if taken:
            raise ValueError(f"objects are saved under names that are in use: {', '.join(taken)}")
        self._directory = plain_path(directory)
        self._triggers = Triggers(every_epochs, every_steps, every_seconds)
        self._signal = TerminationSignal() if on_sigterm else None
        self._best = None if monitor is None else Best(monitor, mode)
        self._keep_best = keep_best
        self._max_to_keep = max_to_keep
        self._keep_hours = keep_checkpoint_every_n_hours
        self._objects = dict(objects or {})
        self._options = resolved(options)
        self._data: Data | None = None
        self._manager: CheckpointManager | None = None
        self._best_manager: CheckpointManager | None = None
        self._catching_up = False
        self._stopped = False

    def resumable(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int | None = None,
    ) -> Any:
        """Makes data whose place is saved with the run, to be passed to ``fit()`` as its ``x``.

        How exactly a place is found again depends on what the data is:

        - arrays, and ``PyDataset`` or ``Sequence``: computed from ``seed``;
        - iterables and iterators with ``get_state()`` and ``set_state()``, or ``state_dict()`` and ``load_state_dict()``:
          given back their state;
        - a ``tf.data.Dataset``, and iterators that milepost tracks: restored with the checkpoint. The order of later
          passes over a dataset is the same if its shuffles have seeds;
        - a ``DataLoader`` of PyTorch, and other iterables: read again from the beginning of the pass, with the random
          state of Python, NumPy and PyTorch as it was there. The last batch must come out as it was.

        Args:
            x: The data: arrays, dicts, lists or tuples of arrays, or something that yields batches.
            y: Targets, beside arrays.
            sample_weight: Weights, beside arrays.
            batch_size: Rows in a batch, of arrays.
            shuffle: Whether to shuffle the rows of arrays, or the batches of a ``PyDataset``, anew in each pass.
            seed: Of the shuffling; by default another one for each run, which is saved.

        Returns:
            What to pass to ``fit()``, with neither ``y`` nor ``batch_size`` nor ``class_weight``.

        Raises:
            UnsupportedError: No place in the data can be found again, as with generators.
        """
        self._data, readable = make_feed((x, y, sample_weight), batch_size, shuffle, seed, self._trainer())
        return self._readable(readable)

    @property
    def manager(self) -> CheckpointManager:
        """The manager of the run's checkpoints; there is one once ``fit()`` has begun."""
        if self._manager is None:
            raise UnsupportedError("there is no manager yet", remedy="call fit() first")
        return self._manager

    @property
    def best_checkpoint(self) -> str | None:
        """Path of the checkpoint of the best epoch so far, or None."""
        return None if self._best_manager is None else self._best_manager.latest_checkpoint

    @property
    def is_catching_up(self) -> bool:
        """Whether ``fit()`` is counting through batches that were trained before the run was interrupted."""
        return self._catching_up

    @property
    def was_terminated(self) -> bool:
        """Whether the last ``fit()`` was stopped by SIGTERM."""
        return self._stopped

    def on_train_begin(self, logs: Any = None) -> None:
        model = self.model
        self._stopped = self._catching_up = False
        if self._triggers.within_epochs or self._signal is not None:
            self._require_data("save in the middle of an epoch")
        if self._data is not None:
            self._data.start((self.params or {}).get("steps"))
        self._history_due: dict[str, Any] | None = None
        self._expected_epoch: int | None = None
        self._logs: dict[str, Any] = {}
        self._facts = Facts()
        self._epoch, self._batch, self._step = (Variable(np.int64(0), name=n) for n in ("epoch", "batch", "step"))
        self._checkpoint = Checkpoint(
            model=model,
            optimizer=model.optimizer,
            epoch=self._epoch,
            batch=self._batch,
            step=self._step,
            fit=self._facts,
            **self._other_objects(),
            **self._objects,
        )
        self._manager = CheckpointManager(
            self._checkpoint, self._directory, self._max_to_keep, self._keep_hours, options=self._options
        )
        path = self._manager.latest_checkpoint
        if self._best is not None:
            # A run that is resumed goes on with its best checkpoints, too, without restoring one of them.
            options = dataclasses.replace(self._options, overwrite=self._options.overwrite or path is not None)
            directory = os.path.join(self._directory, "best")
            self._best_manager = CheckpointManager(self._checkpoint, directory, self._keep_best, options=options)
        if path is None:
            self._manager.restore_or_initialize()  # raises if there are checkpoints, and none is good
            if self._data is not None:
                self._data.rewind()
        else:
            self._resume(path)
        self._triggers.saved(int(self._step))
        if self._signal is not None:
            self._signal.install()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._expected_epoch is not None:
            self._leave_epoch_to_fit()
            if epoch != self._expected_epoch:
                raise MismatchError(
                    "fit() does not begin with the epoch at which its run was saved",
                    file=self.manager.latest_checkpoint,
                    expected=self._expected_epoch,
                    found=epoch,
                    remedy="leave initial_epoch to the callback, or start in another directory",
                )
            self._expected_epoch = None
        self._give_back_history()
        self._epoch.assign(epoch)
        if not self._catching_up:
            self._batch.assign(0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._catching_up:
            self._catch_up(batch + 1)
            return
        done = batch + 1 - int(self._batch)
        self._batch.assign(batch + 1)
        self._step.assign_add(done)
        self._after_step()
        if self._data is not None:
            self._data.trained(done)
        stop = self._signal is not None and self._signal.received
        if stop or self._triggers.after_batch(int(self._step)):
            self._logs = dict(logs or {})
            self._save()
        if stop:
            self._stopped = True
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._stopped or self._is_cut_short():
            return
        self._after_epoch()
        logs = dict(logs or {})
        self._logs = {}
        self._epoch.assign(epoch + 1)
        self._batch.assign(0)
        stop = self._signal is not None and self._signal.received
        better = self._best is not None and self._best.is_improved_by(logs, self._metrics())
        if better or stop or self._triggers.after_epoch(epoch + 1, int(self._step)):
            self._save((epoch, logs), best=better)
        if stop:
            self._stopped = True
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        if self._catching_up:
            self._end_catching_up()
        self._leave_epoch_to_fit()
        self._give_back_history()
        if self._signal is not None:
            self._signal.remove()
        self._checkpoint.sync()

    # What differs between generations of Keras.

    def _trainer(self) -> Trainer:
        """How the trainer reads data."""
        raise NotImplementedError

    def _readable(self, data: Any) -> Any:
        """What the trainer takes for a feed or a dataset."""
        raise NotImplementedError

    def _continue_at_epoch(self, epoch: int) -> None:
        """Makes ``fit()`` begin with this epoch."""
        raise NotImplementedError

    def _leave_epoch_to_fit(self) -> None:
        """Undoes `_continue_at_epoch`."""
        raise NotImplementedError

    def _other_objects(self) -> dict[str, Any]:
        """What is to be saved beside model and optimizer."""
        return {}

    def _make_everything(self) -> None:
        """Lets the model make what it makes in the first step, where milepost cannot give it values later."""

    def _after_step(self) -> None:
        """Called after each step that was trained."""

    def _after_epoch(self) -> None:
        """Called after the steps of an epoch."""

    def _metrics(self) -> list[Any]:
        return list(self.model.metrics)

    def _save(self, finished: tuple[int, dict[str, Any]] | None = None, best: bool = False) -> None:
        _ = self.model  # on JAX this takes the state back from the trainer
        self._facts.now = {
            "logs": {name: _number(value) for name, value in self._logs.items()},
            "history": self._history_with(finished),
            "random": random_state(),
            "best": None if self._best is None else self._best.value,
            "place": None,
        }
        if self._data is not None:
            if finished is None and not self._data.is_read:
                self._require_data("save in the middle of an epoch", "fit() does not read what resumable() returned")
            self._facts.now["place"] = self._data.place()
            tracked = self._data.tracked()
            if tracked is not None:
                self._checkpoint.data = tracked
        for name, value in self._other_objects().items():
            setattr(self._checkpoint, name, value)
        with nullcontext() if finished is None else self._metrics_at_zero():
            managers = [self._best_manager, self.manager] if best and self._best_manager is not None else [self.manager]
            if not self.manager.checkpoints:
                # A run that is killed between its first two saves is resumed, and so may save the best one again.
                managers.reverse()
            for manager in managers:
                manager.save()
        self._triggers.saved(int(self._step))
        if self._signal is not None and self._signal.received:
            self._checkpoint.sync()

    @contextmanager
    def _metrics_at_zero(self) -> Iterator[None]:
        """Between epochs, metrics are saved as the next epoch begins with them.

        Where they are made in the first step only, their values come too late to be reset.
        """
        variables = [variable for metric in self._metrics() for variable in metric.variables]
        values = [_value(variable) for variable in variables]
        self.model.reset_metrics()
        yield
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    def _resume(self, path: str) -> None:
        stand_in = None if self._data is None else self._data.stand_in()
        if stand_in is not None:  # so that the iterator's values do not wait for one that comes later
            self._checkpoint.data = stand_in
        status = self._checkpoint.restore(path, self._options).assert_existing_objects_matched()
        batch, epoch = int(self._batch), int(self._epoch)
        if batch:
            status.expect_partial()  # all is restored once more after the batches that are counted through
            self._require_data("resume in the middle of an epoch")
            self._make_everything()
            for name, value in self._other_objects().items():
                setattr(self._checkpoint, name, value)
        facts = self._facts.now
        if self._data is not None and facts["place"] is not None:
            self._data.resume(facts["place"], batch, self._attach_from(path))
        if self._best is not None:
            self._best.value = facts["best"]
        set_random_state(facts["random"])
        self._history_due = facts["history"]
        self._expected_epoch = epoch
        self._continue_at_epoch(epoch)
        if batch:
            self._begin_catching_up(path, batch, facts["logs"])

    def _begin_catching_up(self, path: str, batch: int, logs: dict[str, Any]) -> None:
        self._catching_up, self._resumed_path, self._target = True, path, batch
        self._train_function = self.model.train_function

        def count(*arguments: Any) -> Any:
            # JAX' trainer passes its state and the data, and wants the state back.
            return (dict(logs), arguments[0]) if len(arguments) > 1 else dict(logs)

        self.model.train_function = count

    def _catch_up(self, batch: int) -> None:
        if batch < self._target:
            return
        path = self._resumed_path
        self._end_catching_up()
        if batch > self._target:
            raise MismatchError(
                "fit() runs other batches at once than when this checkpoint was saved",
                file=path,
                expected=f"a step that ends after batch {self._target}",
                found=f"one that ends after batch {batch}",
                remedy="compile the model with the same steps_per_execution",
            )
        _ = self.model
        self._checkpoint.restore(path, self._options).assert_existing_objects_matched()
        set_random_state(self._facts.now["random"])
        if self._data is not None:
            self._data.caught_up()

    def _end_catching_up(self) -> None:
        self._catching_up = False
        self.model.train_function = self._train_function

    def _attach_from(self, path: str) -> Attach:
        def attach(tracked: Any) -> None:
            Checkpoint(data=tracked).read(path, self._options).expect_partial()

        return attach

    def _history_with(self, finished: tuple[int, dict[str, Any]] | None) -> dict[str, Any]:
        history = self.model.history
        epochs = list(history.epoch)
        values = {name: [_number(each) for each in column] for name, column in history.history.items()}
        if finished is not None and finished[0] not in epochs:  # Keras' own callback comes after this one
            epochs.append(finished[0])
            for name, value in finished[1].items():
                values.setdefault(name, []).append(_number(value))
        return {"epochs": epochs, "values": values}

    def _give_back_history(self) -> None:
        due, self._history_due = self._history_due, None
        if due is not None:
            history = self.model.history
            history.epoch[:] = due["epochs"]
            history.history.clear()
            history.history.update(due["values"])

    def _is_cut_short(self) -> bool:
        """Whether another callback stopped the epoch before its end."""
        steps = (self.params or {}).get("steps")
        return bool(self.model.stop_training and steps and int(self._batch) < steps)

    def _require_data(self, what: str, problem: str = "fit() was not given data whose place can be saved") -> None:
        if self._data is None or problem.startswith("fit() does not"):
            raise UnsupportedError(
                f"cannot {what}: {problem}",
                expected="fit(callback.resumable(x, y), callbacks=[callback])",
                found="other data",
                remedy="pass what resumable() returns to fit(), without class_weight, or save with every_epochs only",
            )


def _value(variable: Any) -> np.ndarray[Any, Any]:
    adapter = adapter_of(variable)
    assert adapter is not None, "variables of Keras are trackable"
    return adapter.values(variable)[0].read().copy()


def _number(value: Any) -> Any:
    """A logged value as a number of Python, which is written without loss."""
    if isinstance(value, dict):
        return {name: _number(each) for name, each in value.items()}
    array = np.asarray(value)
    return array.item() if array.ndim == 0 else array
