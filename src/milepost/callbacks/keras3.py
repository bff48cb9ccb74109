"""The callback for Keras 3, on each of its backends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import keras

from milepost.adapters.keras.private import DataAdapter, LossScaleOptimizer, data_adapter_utils, global_seed_generator
from milepost.callbacks.checkpoints import FitCheckpoints
from milepost.callbacks.compiled import compiled
from milepost.callbacks.feed import PLACEHOLDER, Feed
from milepost.callbacks.resumable import Trainer
from milepost.callbacks.running import FirstEpoch


class PassLength(int):
    """The number of batches in a pass, which checks with the feed whether that many were read.

    To find the end of a pass, Keras counts batches from the start of ``fit()``. But ``fit()`` may start in the middle
    of a pass, and steps after the end of the pass would fail.
    """

    _feed: Feed

    def __new__(cls, feed: Feed) -> PassLength:
        self = super().__new__(cls, feed.length or 0)
        self._feed = feed
        return self

    def __le__(self, seen: int) -> bool:
        return seen > 0 and self._feed.is_over


class FeedAdapter(DataAdapter):  # type: ignore[misc]
    """How Keras' trainers read a feed."""

    is_of_resumable = True

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.dataset: Any = None

    def get_numpy_iterator(self) -> Iterator[Any]:
        found: Iterator[Any] = data_adapter_utils.get_numpy_iterator(self._feed)
        return found

    def get_jax_iterator(self) -> Iterator[Any]:
        found: Iterator[Any] = data_adapter_utils.get_jax_iterator(self._feed)
        return found

    def get_torch_dataloader(self) -> Iterator[Any]:
        from milepost.adapters.keras.private import convert_to_tensor

        for batch in self._feed:
            yield batch if batch is PLACEHOLDER else keras.tree.map_structure(convert_to_tensor, batch)

    def get_tf_dataset(self) -> Any:
        from milepost.callbacks.tensorflow_data import dataset_of

        self.dataset = dataset_of(self._feed)
        return self.dataset

    @property
    def num_batches(self) -> int | None:
        return None if self._feed.length is None else PassLength(self._feed)

    @property
    def batch_size(self) -> None:
        return None

    @property
    def has_partial_batch(self) -> None:
        return None

    @property
    def partial_batch_size(self) -> None:
        return None


class InitialEpoch(FirstEpoch):
    """The object that Keras 3 asks whether there is a first epoch, and which."""

    def __bool__(self) -> bool:
        self._model._initial_epoch = None
        return self._fit.is_called_from_it(sys._getframe(1))

    def __index__(self) -> int:
        return self._epoch


class Keras3Checkpoints(FitCheckpoints, keras.callbacks.Callback):  # type: ignore[misc]
    """`FitCheckpoints` for the trainers of Keras 3."""

    _iterations_before: int | None = None

    def _trainer(self) -> Trainer:
        backend = keras.backend.backend()
        return Trainer(keras.config.floatx(), in_tensorflow=backend == "tensorflow", placeholders=backend == "torch")

    def _readable(self, data: Any) -> Any:
        self._given = FeedAdapter(data) if isinstance(data, Feed) else data
        return self._given

    def _without_effect(self) -> Any:
        return keras.callbacks.Callback()

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        self._program = compiled(model)  # before any callback changes it

    def _continue_at_epoch(self, epoch: int) -> None:
        self.model._initial_epoch = InitialEpoch(self.model, epoch, self._running)

    def _leave_epoch_to_fit(self) -> None:
        if isinstance(self.model._initial_epoch, InitialEpoch):
            self.model._initial_epoch = None

    def _build_optimizer(self) -> None:
        optimizer = self.model.optimizer
        if self.model.built and not optimizer.built:  # as Keras leaves it with TensorFlow alone
            optimizer.build(self.model.trainable_variables)

    def _make_everything(self) -> bool:
        if keras.backend.backend() != "tensorflow":
            return False
        from milepost.callbacks.tensorflow_data import trace

        dataset = self._given.dataset if isinstance(self._given, FeedAdapter) else self._given
        has_trained = trace(self.model.train_function, dataset)
        assert self._data is not None
        self._data.rewind()
        return has_trained

    def _make_for_the_end(self) -> bool:
        return not self.model.built and self._data is not None and self._make_everything()

    def _after_restoring_between_steps(self) -> None:
        if getattr(self.model, "_jax_state", None):
            # JAX' trainer gives the state of the last step to the model when an epoch ends, even if no step follows.
            parts = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")
            state = self.model._get_jax_state(**dict.fromkeys(parts, True))
            self.model._jax_state = dict(zip(parts, state, strict=True))

    def _place_of_trainer(self) -> dict[str, Any] | None:
        reader = self._reader()
        if reader is None:
            return None
        begun = reader.steps_per_epoch is not None and reader._current_iterator is not None
        length = None if reader._num_batches is None else int(reader._num_batches)
        return {"seen": reader._steps_seen if begun else None, "length": length}

    def _set_place_of_trainer(self, place: dict[str, Any]) -> None:
        reader = self._reader()
        if reader is None:
            return
        if reader._num_batches is None:
            reader._num_batches = place["length"]
        if reader.steps_per_epoch is not None and place["seen"] is not None:
            reader._current_iterator = iter(reader._get_iterator())
            reader._steps_seen = place["seen"]

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_begin(batch, logs)
        self._iterations_before = self._iterations_now()

    def _batches_run(self, counted: int) -> int:
        before, now = self._iterations_before, self._iterations_now()
        return counted if before is None or now is None or before == now else min(counted, now - before)

    def _iterations_now(self) -> int | None:
        """The optimizer's count of the batches, if Keras counts some that do not exist.

        TensorFlow's trainer does not tell after how many batches data of unknown length has ended within a step.
        """
        if keras.backend.backend() != "tensorflow" or self.model.steps_per_execution == 1:
            return None
        reader, optimizer = self._reader(), self.model.optimizer
        # An optimizer that scales the loss does not count the batches that it leaves out.
        if reader is None or reader.data_adapter.num_batches is not None or isinstance(optimizer, LossScaleOptimizer):
            return None
        return int(optimizer._iterations)

    def _batches_in_step(self, counted: int) -> int:
        reader = self._reader()
        if reader is None or reader._num_batches is None:
            return counted
        missing: int = reader._steps_seen - reader._num_batches
        return max(0, counted - max(0, missing))

    def _is_last_step(self, end: int) -> bool:
        reader = self._reader()
        at_end = reader is not None and reader._num_batches is not None and reader._steps_seen >= reader._num_batches
        return at_end or super()._is_last_step(end)

    def _reader(self) -> Any:
        """The object that reads the data for ``fit()``."""
        return self._running.reader

    def _other_objects(self) -> dict[str, Any]:
        return {"seed": global_seed_generator()}
