"""When a run of ``fit()`` is saved, and how it is resumed in another process.

A run is saved in ``on_epoch_end`` or in ``on_train_batch_end``, and is resumed at the same point. To resume in the
middle of an epoch, ``fit()`` counts through the batches that are already trained, without reading or training them. At
the end of the last of them, everything is restored. Other callbacks get these batches again, so that those that count
batches count correctly. All changes that they make to the model, the optimizer and themselves meanwhile are
overwritten.

The callback always acts last, whatever its position in the list. So it saves the changes that the others have made, and they do not
undo what it restores.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from milepost.callbacks.arguments import refuse_arguments, refuse_other_data
from milepost.callbacks.averaged import AveragedWeights
from milepost.callbacks.best import Best
from milepost.callbacks.catching_up import Counting, remove_counting
from milepost.callbacks.compiled import CHOICES, compiled, must_train_the_same, note_rates, rates_to_take
from milepost.callbacks.facts import facts_in
from milepost.callbacks.indexed import IndexedSource
from milepost.callbacks.monitored import Monitor
from milepost.callbacks.others import OtherCallbacks
from milepost.callbacks.resumable import make_feed
from milepost.callbacks.running import RunningFit, move_to_the_end
from milepost.callbacks.runs import SavedRun
from milepost.callbacks.triggers import EpochTriggers
from milepost.distributed.find import first_decides
from milepost.engine.options import CheckpointOptions, resolved
from milepost.errors import MismatchError, UnsupportedError
from milepost.manager import CheckpointManager
from milepost.manager.arguments import check_times
from milepost.manager.termination import TerminationSignal
from milepost.retention import Policy
from milepost.storage.paths import plain_path

PathLike = str | os.PathLike[str]
_RESERVED = ("batch", "callbacks", "data", "epoch", "fit", "metrics", "model", "optimizer", "seed", "step")


class FitCheckpoints(SavedRun):
    """The callback without its base class of Keras; see `milepost.keras.CheckpointCallback`."""

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
        keep: Policy | None = None,
        learning_rate: str | None = None,
        continue_ended: bool = False,
        objects: Mapping[str, Any] | None = None,
        options: CheckpointOptions | None = None,
    ) -> None:
        super().__init__()
        taken = sorted(set(objects or ()) & {*_RESERVED, "save_counter"})
        if taken:
            raise ValueError(f"these names in objects= are reserved: {', '.join(taken)}")
        if learning_rate not in CHOICES:
            raise ValueError(f"learning_rate must be 'program', 'saved' or None, not {learning_rate!r}")
        check_times(keep, None, None)
        self._directory = plain_path(directory)
        self._triggers = EpochTriggers(every_epochs, every_steps, every_seconds)
        self._signal = TerminationSignal() if on_sigterm else None
        self._best = None if monitor is None else Best(monitor, mode)
        self._keep_best = keep_best
        self._max_to_keep = max_to_keep
        self._keep_hours = keep_checkpoint_every_n_hours
        self._keep = keep
        self._objects = dict(objects or {})
        self._options = resolved(options)
        self._data = None
        self._learning_rate = learning_rate
        self._continue_ended = continue_ended
        self._catching_up = None
        self._stopped = False
        self._returned: Any = None
        self._is_shuffled = False
        self._program: dict[str, Any] | None = None
        self._prepared_for: Any = None
        self._is_first_step = True
        self._is_cut_short = False

    def resumable(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        batch_size: int = 32,
        shuffle: bool = True,
        seed: int | None = None,
        class_weight: Mapping[int, float] | None = None,
    ) -> Any:
        """Makes data whose position is saved with the run. Pass the result to ``fit()`` as ``x``.

        How a saved position is restored depends on the data:

        - Arrays, and ``PyDataset`` or ``Sequence``: it is computed from ``seed``.
        - Iterables and iterators with ``get_state()`` and ``set_state()``, or ``state_dict()`` and
          ``load_state_dict()``: they get their saved state.
        - A ``tf.data.Dataset``, and iterators that milepost tracks: their iterator is restored with the checkpoint.
          Later passes over a dataset have the same order if its shuffles have seeds.
        - A ``DataLoader`` of PyTorch, and other iterables: they are read again from the start of the pass, with the
          random state of Python, NumPy and PyTorch of that time. The last batch is compared with the saved one.

        Args:
            x: The data: arrays, dicts, lists or tuples of arrays, or an object that yields batches.
            y: The targets. Only with arrays.
            sample_weight: The weight of each row. Only with arrays.
            batch_size: The number of rows in a batch. It has no effect on data that yields batches.
            shuffle: Whether to shuffle the rows of arrays, or the batches of a ``PyDataset``, in each pass. It has no
                effect on other data.
            seed: The seed of the shuffling; by default each run has a new one, the same on all its processes. It is saved.
            class_weight: The weight of each class. It becomes a sample weight, as in ``fit()``.

        Returns:
            The data for ``fit()``. Do not pass ``y``, ``batch_size``, ``class_weight`` or similar arguments to
            ``fit()`` with it.

        Raises:
            UnsupportedError: The data cannot return to a saved position. Generators, for example, cannot.
        """
        self._data, readable = make_feed(
            (x, y, sample_weight), batch_size, shuffle, seed, self._trainer(), class_weight
        )
        source = getattr(self._data, "source", None)
        self._is_shuffled = shuffle and isinstance(source, IndexedSource)
        if isinstance(source, IndexedSource) and source.needs_seed:
            source.draw(first_decides(self._options, "draw the seed of the shuffling", partial(secrets.randbits, 63)))
        self._returned = self._readable(readable)
        return self._returned

    @property
    def manager(self) -> CheckpointManager:
        """The manager of the checkpoints of the run. It exists once ``fit()`` has begun.

        Raises:
            UnsupportedError: ``fit()`` was not called yet.
        """
        if self._manager is None:
            raise UnsupportedError("the manager does not exist before fit()", remedy="call fit() first")
        return self._manager

    @property
    def best_checkpoint(self) -> str | None:
        """The path of the checkpoint of the best epoch so far, or None.

        The metric is ``monitor`` or, without one, that of the first `milepost.retention.Best` in ``keep``.
        """
        if self._best_manager is not None:
            return self._best_manager.latest_checkpoint
        if self._manager is None or self._keep is None:
            return None
        with suppress(UnsupportedError):  # there is no policy by a metric
            step = self._manager.best_step()
            found = dict(zip(self._manager.steps, self._manager.checkpoints, strict=True))
            return None if step is None else found[step]
        return None

    @property
    def is_catching_up(self) -> bool:
        """Whether ``fit()`` is counting through batches that were trained before the interruption."""
        return self._catching_up is not None and self._running.is_running()

    @property
    def was_terminated(self) -> bool:
        """Whether the last ``fit()`` received SIGTERM, saved the run and stopped."""
        return self._stopped

    def on_train_begin(self, logs: Any = None) -> None:
        self._running = RunningFit(self)
        self._refuse_others_of_this_kind()
        callbacks = self._running.callbacks
        if callbacks is None or callbacks is not self._prepared_for:
            self._prepare()
        if callbacks is not None and move_to_the_end(callbacks.callbacks, self, self._without_effect()):
            self._prepared_for = callbacks
            return  # until all others have begun
        self._prepared_for = None
        self._begin()
        self._running.arguments = {}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._expected_epoch is not None:
            self._leave_epoch_to_fit()
            if epoch != self._expected_epoch:
                raise MismatchError(
                    "fit() does not start at the epoch at which this run was saved",
                    file=self.manager.latest_checkpoint,
                    expected=self._expected_epoch,
                    found=epoch,
                    remedy="do not pass initial_epoch, or use another directory",
                )
            self._expected_epoch = None
        self._give_back_history()
        self._averaged.hold(epoch, (self.params or {}).get("epochs", 0))
        self._epoch.assign(epoch)
        if self._catching_up is None:
            self._batch.assign(0)
            self._end = self._calls = 0
            self._place_before = self._place_of_trainer()
            note_rates(self.model)
        if self._data is not None:
            self._data.begin_epoch()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._catching_up is not None:
            Counting(self._net, self._catching_up.logs, self._running)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._catching_up is not None:
            if self._catching_up.is_over(batch + 1):
                self._restore_again()
            else:  # a callback that looks at the optimizer sees the last of these steps already, and may stop there
                self._net.stop_training = False
            return
        counted = self._batches_run(batch + 1 - self._end)
        self._end = batch + 1
        self._calls += 1
        trained = self._batches_in_step(counted) if self._data is None else self._data.trained(counted)
        self._batch.assign_add(trained)
        self._step.assign_add(trained)
        self._after_step()
        if self._is_first_step:
            self._check_first_step(logs)
        self._is_cut_short = bool(self._net.stop_training) and not self._is_last_step(self._end)
        stop = self._signal is not None and self._signal.received
        if stop or self._triggers.after_batch(int(self._step)):
            self._logs = dict(logs or {})
            self._save()
        if stop:
            self._stopped = True
            self._net.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if not self._stopped and not self._is_cut_short:
            self._end_epoch(epoch, dict(logs or {}))
        self._averaged.let_go()
        note_rates(self.model)

    def on_train_end(self, logs: Any = None) -> None:
        self._catching_up = None
        remove_counting(self._net)
        self._leave_epoch_to_fit()
        self._give_back_history()
        if self._signal is not None:
            self._stopped = self._stopped or self._signal.received
            self._signal.remove()
        note_rates(self.model)
        assert self._checkpoint is not None
        self._checkpoint.sync()

    def _prepare(self) -> None:
        """Checks everything that can be checked before anything is changed."""
        model, given = self.model, self._running.arguments
        self._clean_up(model)
        refuse_other_data(given, self._returned)
        if self._data is not None:
            refuse_arguments(given, self._is_shuffled)
        if self._triggers.within_epochs or self._signal is not None:
            self._require_data("save in the middle of an epoch")
        self._net = model
        self._path = self._open()
        self._saved_facts, epoch = ({}, 0) if self._path is None else facts_in(self._path, self._options)
        self._check_data(self._saved_facts.get("place"))
        program = self._program or compiled(model)
        self._rates = None
        self._compiled = self._saved_facts.get("compiled") or program
        if self._path is not None and "compiled" in self._saved_facts:
            self._rates = rates_to_take(
                self._compiled, self._saved_facts["rates"], program, model.optimizer, self._learning_rate, self._path
            )
            if self._rates is not None:
                self._compiled = {**self._compiled, "rates": self._rates}
        if given.get("initial_epoch", 0) > epoch and self._path is not None:
            raise MismatchError(
                "fit() would start at an epoch that this run has not reached; nothing was trained",
                file=self._path,
                expected=f"initial_epoch of at most {epoch}",
                found=given["initial_epoch"],
                remedy="do not pass initial_epoch, or train this phase in another directory",
            )
        self._monitor = None
        if self._best is not None:
            self._monitor = Monitor(self._best, model, given, self._running.others(self))
            self._monitor.check_before_training(self._metrics())

    def _refuse_others_of_this_kind(self) -> None:
        others = [each for each in self._running.others(self) if isinstance(each, FitCheckpoints)]
        if others:
            raise UnsupportedError(
                "fit() can be resumed by one CheckpointCallback only; nothing was trained",
                expected="one CheckpointCallback in callbacks=",
                found=f"{1 + len(others)}, for {', '.join(each._directory for each in (self, *others))}",
                remedy="pass one of them: with monitor= it also keeps the best epochs, and with "
                "keep_checkpoint_every_n_hours= older checkpoints",
            )

    def _check_data(self, place: dict[str, Any] | None) -> None:
        """Refuses data other than that of the saved run."""
        if self._data is None or place is None:
            return
        try:
            self._data.check(place)
        except MismatchError as error:
            raise error.with_context(file=self._path) from None

    def _clean_up(self, model: Any) -> None:
        """Removes what a ``fit()`` that ended with an exception has left behind."""
        remove_counting(model)
        self._leave_epoch_to_fit()
        if self._signal is not None:
            self._signal.remove()
        if self._checkpoint is not None:
            self._checkpoint.sync()
        self._stopped = self._is_cut_short = False
        self._is_first_step = True

    def _begin(self) -> None:
        """Begins or resumes the run, after all other callbacks have begun."""
        self._others = OtherCallbacks(self._running.others(self))
        self._averaged = AveragedWeights(self._running.others(self))
        if self._data is not None:
            self._data.start((self.params or {}).get("steps"))
        if self._path is None:
            self.manager.restore_or_initialize()  # raises if there are checkpoints, and none is good
            if self._data is not None:
                self._data.rewind()
        else:
            self._resume(self._path, "callbacks" in self._saved_facts)
        self._triggers.saved(int(self._step))
        if self._signal is not None:
            self._signal.install(self._running.is_running)

    def _check_first_step(self, logs: Any) -> None:
        """Performs the checks that need a model's first step."""
        self._is_first_step = False
        if self._monitor is not None:
            self._monitor.check_after_step(logs, self._metrics())
        if self._path is not None and self._compiled["trainable"] is not None:
            must_train_the_same(self._compiled, compiled(self.model), self._path)

    def _end_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        self._after_epoch()
        self._logs = {}
        self._epoch.assign(epoch + 1)
        self._batch.assign(0)
        self._end = self._calls = 0
        self._has_ended = bool(self._net.stop_training)
        stop = self._signal is not None and self._signal.received
        better = self._monitor is not None and self._monitor.is_improved_by(logs, self._metrics())
        # A signal after the last epoch comes too late for a save.
        last = self._signal is not None and epoch + 1 == (self.params or {}).get("epochs")
        if better or stop or last or self._has_ended or self._triggers.after_epoch(epoch + 1, int(self._step)):
            self._save((epoch, logs), best=better)
        if stop:
            self._stopped = True
            self._net.stop_training = True
