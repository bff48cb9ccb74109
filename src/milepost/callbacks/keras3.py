"""The callback for Keras 3, on each of its backends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras

from milepost.adapters.keras.private import DataAdapter, data_adapter_utils, global_seed_generator
from milepost.callbacks.checkpoints import FitCheckpoints
from milepost.callbacks.feed import PLACEHOLDER, Feed
from milepost.callbacks.resumable import Trainer


class FeedAdapter(DataAdapter):  # type: ignore[misc]
    """How Keras' trainers read a feed."""

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
        return self._feed.length

    @property
    def batch_size(self) -> None:
        return None

    @property
    def has_partial_batch(self) -> None:
        return None

    @property
    def partial_batch_size(self) -> None:
        return None


class Keras3Checkpoints(FitCheckpoints, keras.callbacks.Callback):  # type: ignore[misc]
    """`FitCheckpoints` under the trainers of Keras 3."""

    def _trainer(self) -> Trainer:
        backend = keras.backend.backend()
        return Trainer(keras.config.floatx(), in_tensorflow=backend == "tensorflow", placeholders=backend == "torch")

    def _readable(self, data: Any) -> Any:
        self._given = FeedAdapter(data) if isinstance(data, Feed) else data
        return self._given

    def _continue_at_epoch(self, epoch: int) -> None:
        self.model._initial_epoch = epoch

    def _leave_epoch_to_fit(self) -> None:
        self.model._initial_epoch = None

    def _make_everything(self) -> None:
        if keras.backend.backend() == "tensorflow":
            from milepost.callbacks.tensorflow_data import trace

            trace(
                self.model.train_function, self._given.dataset if isinstance(self._given, FeedAdapter) else self._given
            )
            assert self._data is not None
            self._data.rewind()

    def _other_objects(self) -> dict[str, Any]:
        return {"seed": global_seed_generator()}
