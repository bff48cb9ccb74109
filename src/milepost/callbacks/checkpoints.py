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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, Literal

from milepost.callbacks.arguments import refuse_arguments, refuse_other_data
from milepost.callbacks.catching_up import count_only, remove_counting
from milepost.callbacks.compiled import CHOICES
from milepost.callbacks.data.feed import Data
from milepost.callbacks.data.indexed import IndexedSource
from milepost.callbacks.data.resumable import make_feed
from milepost.callbacks.fit import FitCall
from milepost.callbacks.generations import Generation
from milepost.callbacks.monitored import BestValue, Monitor
from milepost.callbacks.part_of_epoch import PartOfEpoch
from milepost.callbacks.runs import Finished, RunSettings, SavedRun, without_data
from milepost.callbacks.triggers import EpochTriggers
from milepost.distributed.find import first_decides
from milepost.engine.options import CheckpointOptions, resolved
from milepost.errors import UnsupportedError, warn
from milepost.manager import CheckpointManager
from milepost.manager.arguments import check_times
from milepost.manager.committed import OnCommitted, check_hook
from milepost.manager.finite_policy import KeepLastFinite, finite_policy
from milepost.manager.signals.termination import Signals, termination_signal
from milepost.manager.tolerance import Tolerate, policy_of
from milepost.retention import Policy
from milepost.saving.files import Source, check_files
from milepost.storage.paths import plain_path

PathLike = str | os.PathLike[str]
_RESERVED = ("batch", "callbacks", "data", "epoch", "fit", "metrics", "model", "optimizer", "seed", "step")
_END_OF_PASS: Final = "the pass over the data has ended"
"""The value of ``stop_training`` with which this callback ends an epoch and not the run."""


class FitCheckpoints:
    """The callback without its base class of Keras; see `milepost.keras.CheckpointCallback`."""

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
        on_signal: Signals = None,
        grace_seconds: float | None = None,
        monitor: str | None = None,
        mode: str = "auto",
        keep_best: int = 1,
        max_to_keep: int | None = 3,
        keep_checkpoint_every_n_hours: float | None = None,
        keep: Policy | None = None,
        learning_rate: str | None = None,
        continue_ended: bool = False,
        objects: Mapping[str, Any] | None = None,
        on_failure: Literal["raise"] | Tolerate = "raise",
        nonfinite: Literal["keep_last_finite"] | KeepLastFinite | None = None,
        on_committed: OnCommitted | None = None,
        files: Mapping[str, Source] | None = None,
        options: CheckpointOptions | None = None,
    ) -> None:
        super().__init__()
        taken = sorted(set(objects or ()) & {*_RESERVED, "save_counter"})
        if taken:
            raise ValueError(f"these names in objects= are reserved: {', '.join(taken)}")
        if learning_rate not in CHOICES:
            raise ValueError(f"learning_rate must be 'program', 'saved' or None, not {learning_rate!r}")
        check_times(keep, None, None)
        check_hook(on_committed)
        check_files(files)
        self.directory = plain_path(directory)
        self._triggers = EpochTriggers(every_epochs, every_steps, every_seconds)
        self._signal = termination_signal(on_sigterm, on_signal, grace_seconds)
        self._best = None if monitor is None else BestValue(monitor, mode)
        self._options = resolved(options)
        self._settings = RunSettings(
            self.directory,
            keep_best,
            max_to_keep,
            keep_checkpoint_every_n_hours,
            keep,
            learning_rate,
            continue_ended,
            dict(objects or {}),
            policy_of(on_failure),
            finite_policy(nonfinite),
            on_committed,
            files,
            self._options,
        )
        self._generation = self._make_generation()
        self._data: Data | None = None
        self._returned: Any = None
        self._is_shuffled = False
        self._run: SavedRun | None = None
        self._monitor: Monitor | None = None
        self._part = PartOfEpoch()
        self._is_served = self._stopped = self._is_cut_short = False

    def _make_generation(self) -> Generation:
        """The Keras whose base class this callback has."""
        raise NotImplementedError

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
            (x, y, sample_weight), batch_size, shuffle, seed, self._generation.reads, class_weight
        )
        source = getattr(self._data, "source", None)
        self._is_shuffled = shuffle and isinstance(source, IndexedSource)
        if isinstance(source, IndexedSource) and source.needs_seed:
            source.draw(first_decides(self._options, "draw the seed of the shuffling", partial(secrets.randbits, 63)))
        self._returned = self._generation.readable(readable)
        return self._returned

    @property
    def manager(self) -> CheckpointManager:
        """The manager of the checkpoints of the run. It exists once ``fit()`` has begun.

        Raises:
            UnsupportedError: ``fit()`` was not called yet.
        """
        if self._run is None:
            raise UnsupportedError("the manager does not exist before fit()", remedy="call fit() first")
        return self._run.manager

    @property
    def best_checkpoint(self) -> str | None:
        """The path of the checkpoint of the best epoch so far, or None.

        The metric is ``monitor`` or, without one, that of the first `milepost.retention.Best` in ``keep``.
        """
        run = self._run
        if run is not None and run.best_manager is not None:
            return run.best_manager.latest_checkpoint
        if run is None or self._settings.keep is None:
            return None
        with suppress(UnsupportedError):  # there is no policy by a metric
            step = run.manager.best_step()
            paths_by_step = dict(zip(run.manager.steps, run.manager.checkpoints, strict=True))
            return None if step is None else paths_by_step[step]
        return None

    @property
    def is_catching_up(self) -> bool:
        """Whether ``fit()`` is counting through batches that were trained before the interruption."""
        return self._run is not None and self._run.catching_up is not None

    @property
    def was_terminated(self) -> bool:
        """Whether the last ``fit()`` received SIGTERM, saved the run and stopped."""
        return self._stopped

    @contextmanager
    def _serve(self, call: FitCall) -> Iterator[None]:
        """Prepares for a call of ``fit()``, and leaves nothing in the model when it ends.

        Raises:
            MilepostError: The call does not fit this callback or the saved run. Nothing is changed.
        """
        with self._catching():
            run = self._prepare(call)
            self._is_served = True
            try:
                yield
            finally:
                self._is_served = False
                run.catching_up = None
                self._part.end()
                remove_counting(run.net)

    @contextmanager
    def _catching(self) -> Iterator[None]:
        """Catches the signals. Handlers of the program get them afterwards, unless the block fails."""
        if self._signal is not None:
            self._signal.install()
        try:
            yield
        except BaseException:
            self._stop_catching(pass_on=False)
            raise
        self._stop_catching(pass_on=True)

    def _stop_catching(self, *, pass_on: bool) -> None:
        if self._signal is not None:
            self._stopped = self._stopped or self._signal.received
            self._signal.remove(pass_on=pass_on)

    def _prepare(self, call: FitCall) -> SavedRun:
        """Checks everything that can be checked before anything is changed."""
        if self._run is not None:
            self._run.checkpoint.sync()
        self._stopped = self._is_cut_short = False
        refuse_other_data(call.arguments, self._returned)
        if self._data is not None:
            self._data.counted_at_end = self._generation.counted_at_end(call.model)
            refuse_arguments(call.arguments, self._is_shuffled)
        elif self._triggers.within_epochs or self._signal is not None:
            raise without_data("save in the middle of an epoch")
        self._run = SavedRun(self._settings, call, self._generation, self._data, self._best)
        self._monitor = None
        if self._best is not None:
            self._monitor = Monitor(self._best, call.model, call.arguments, call.others)
            self._monitor.check_before_training(self._run.metrics)
        return self._run

    @property
    def _now(self) -> SavedRun:
        assert self._run is not None, "on_train_begin() comes first"
        return self._run

    def on_train_begin(self, logs: Any = None) -> None:
        if not self._is_served:
            warn(
                "this callback was not passed to fit() of keras.Model, so it knows no other callbacks and does not save their state: "
                "call fit() with it, or save their state with objects="
            )
            self._prepare(FitCall(self.model))
        self._now.begin(self.params)
        self._triggers.saved(int(self._now.step))
        if self._signal is not None:
            self._signal.install()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._now.begin_epoch(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        run = self._now
        if run.catching_up is not None:
            count_only(run.net, run.catching_up.logs)
        run.before_step()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        run = self._now
        if run.catching_up is None:
            self._after_step(run, batch, logs)
        elif run.catching_up.is_over(batch + 1):
            run.restore_again()
        else:  # a callback that looks at the optimizer sees the last of these steps already, and may stop there
            run.net.stop_training = False
            return
        if run.ends_epoch_early and not run.net.stop_training:
            run.net.stop_training = _END_OF_PASS

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        run = self._now
        if run.net.stop_training == _END_OF_PASS:
            warn("an epoch had fewer steps than steps_per_epoch, because it ends with the pass over the data")
            run.net.stop_training = False
        self._part.end(but_history=True)
        if not self._stopped and not self._is_cut_short:
            self._end_epoch(epoch, dict(logs or {}))
        run.after_epoch()

    def on_train_end(self, logs: Any = None) -> None:
        self._part.end()
        self._now.end()
        if not self._is_served:
            self._stop_catching(pass_on=True)

    def _after_step(self, run: SavedRun, batch: int, logs: Any) -> None:
        run.after_step(batch)
        if run.is_first_step:
            if self._monitor is not None:
                self._monitor.check_after_step(logs, run.metrics)
            run.check_first_step()
        self._is_cut_short = bool(run.net.stop_training) and not run.is_last_step
        stop = self._signal is not None and self._signal.received
        if stop or self._triggers.after_batch(int(run.step)):
            run.logs = dict(logs or {})
            self._save()
        if stop:
            self._stopped = True
            run.net.stop_training = True
            self._part.begin(run.net, run.call.others)

    def _end_epoch(self, epoch: int, logs: dict[str, Any]) -> None:
        run = self._now
        run.end_epoch(epoch, bool(run.net.stop_training))
        stop = self._signal is not None and self._signal.received
        better = self._monitor is not None and self._monitor.is_improved_by(logs, run.metrics)
        # A signal after the last epoch comes too late for a save.
        last = self._signal is not None and epoch + 1 == (self.params or {}).get("epochs")
        if better or stop or last or run.has_ended or self._triggers.after_epoch(epoch + 1, int(run.step)):
            self._save((epoch, logs), best=better)
        if stop:
            self._stopped = True
            run.net.stop_training = True

    def _save(self, finished: Finished | None = None, best: bool = False) -> None:
        run = self._now
        run.save(finished, best)
        self._triggers.saved(int(run.step))
        if self._signal is not None and self._signal.received:
            run.checkpoint.sync()
