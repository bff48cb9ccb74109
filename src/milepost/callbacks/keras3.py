"""The callback for Keras 3, on each of its backends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import keras

from milepost.adapters.keras.private import DataAdapter, data_adapter_utils, global_seed_generator
from milepost.callbacks.checkpoints import FitCheckpoints
from milepost.callbacks.compiled import compiled
from milepost.callbacks.feed import PLACEHOLDER, Feed
from milepost.callbacks.resumable import Trainer
from milepost.callbacks.running import FirstEpoch


class PassLength(int):
    """How many batches a pass has, which asks the feed whether so many were read.

    Keras counts batches from where ``fit()`` began, to see where a pass ends within an epoch or between two. That may be in
    the middle of a pass, and steps beyond its end would fail.
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
    """What Keras 3 asks whether there is an epoch to begin with, and then which."""

    def __bool__(self) -> bool:
        self._model._initial_epoch = None
        return self._fit.is_called_from_it(sys._getframe(1))

    def __index__(self) -> int:
        return self._epoch


class Keras3Checkpoints(FitCheckpoints, keras.callbacks.Callback):  # type: ignore[misc]
    """`FitCheckpoints` under the trainers of Keras 3."""

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

    def _after_restoring_between_steps(self) -> None:
        if getattr(self.model, "_jax_state", None):
            # JAX' trainer gives the state of the last step to the model when an epoch ends, also if there is no step after this.
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
        """What reads the data for ``fit()``."""
        return self._running.reader

    def _other_objects(self) -> dict[str, Any]:
        return {"seed": global_seed_generator()}
