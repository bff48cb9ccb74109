"""The callback for Keras 3, on each of its backends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras

from milepost.adapters.keras.private import DataAdapter, LossScaleOptimizer, data_adapter_utils, global_seed_generator
from milepost.callbacks.checkpoints import FitCheckpoints
from milepost.callbacks.data.feed import PLACEHOLDER, Data, Feed
from milepost.callbacks.data.resumable import Trainer
from milepost.callbacks.fit import FitCall, tell_of_calls
from milepost.callbacks.generations import Generation
from milepost.callbacks.runs import SavedRun


class FeedAdapter(DataAdapter):  # type: ignore[misc]
    """How Keras' trainers read a feed."""

    is_of_resumable = True

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.dataset: Any = None

    def get_numpy_iterator(self) -> Iterator[Any]:
        iterator: Iterator[Any] = data_adapter_utils.get_numpy_iterator(self._feed)
        return iterator

    def get_jax_iterator(self) -> Iterator[Any]:
        iterator: Iterator[Any] = data_adapter_utils.get_jax_iterator(self._feed)
        return iterator

    def get_torch_dataloader(self) -> Iterator[Any]:
        from milepost.adapters.keras.private import convert_to_tensor

        for batch in self._feed:
            yield batch if batch is PLACEHOLDER else keras.tree.map_structure(convert_to_tensor, batch)

    def get_tf_dataset(self) -> Any:
        from milepost.callbacks.data.tensorflow_data import dataset_of

        self.dataset = dataset_of(self._feed)
        return self.dataset

    @property
    def num_batches(self) -> int | None:
        return self._feed.told_length

    @property
    def batch_size(self) -> None:
        return None

    @property
    def has_partial_batch(self) -> None:
        return None

    @property
    def partial_batch_size(self) -> None:
        return None


class Keras3(Generation):
    """The trainers of Keras 3."""

    def __init__(self) -> None:
        self._backend = keras.backend.backend()
        self.reads = Trainer(
            keras.config.floatx(), in_tensorflow=self._backend == "tensorflow", placeholders=self._backend == "torch"
        )
        self._given: Any = None
        self._iterations_before: int | None = None

    def readable(self, data: Any) -> Any:
        self._given = FeedAdapter(data) if isinstance(data, Feed) else data
        return self._given

    def start_at(self, model: Any, epoch: int) -> None:
        model._initial_epoch = None  # as BackupAndRestore sets it

    def steps(self, call: FitCall) -> int | None:
        most = getattr(keras.config, "max_steps_per_epoch", lambda: None)()  # not in every Keras 3
        return min(filter(None, (super().steps(call), most)), default=None)

    def current(self, model: Any) -> Any:
        if self._backend == "jax":
            model.jax_state_sync()
        return model

    def other_objects(self, model: Any) -> dict[str, Any]:
        return {"seed": global_seed_generator()}

    def build_optimizer(self, model: Any) -> None:
        if model.built and not model.optimizer.built:  # as Keras leaves it with TensorFlow alone
            model.optimizer.build(model.trainable_variables)

    def make_everything(self, model: Any, data: Data) -> bool:
        if self._backend != "tensorflow":
            return False
        from milepost.callbacks.data.tensorflow_data import trace

        dataset = self._given.dataset if isinstance(self._given, FeedAdapter) else self._given
        has_trained = trace(model.train_function, dataset)
        data.rewind()
        return has_trained

    def make_for_the_end(self, model: Any, data: Data | None) -> bool:
        return not model.built and data is not None and self.make_everything(model, data)

    def after_restoring_between_steps(self, model: Any) -> None:
        if getattr(model, "_jax_state", None):
            # JAX' trainer gives the state of the last step to the model when an epoch ends, even if no step follows.
            parts = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")
            state = model._get_jax_state(**dict.fromkeys(parts, True))
            model._jax_state = dict(zip(parts, state, strict=True))

    def counted_at_end(self, model: Any) -> int:
        # The optimizer counts this step, too, in each epoch.
        return int(model.steps_per_execution) if self._backend == "tensorflow" else 0

    # TensorFlow's trainer does not tell after how many batches data of unknown length has ended within a step. The optimizer
    # counts them, except for one that scales the loss, which leaves some out.

    def before_step(self, run: SavedRun) -> None:
        self._iterations_before = self._iterations_now(run)

    def batches_run(self, run: SavedRun, counted: int) -> int:
        before, now = self._iterations_before, self._iterations_now(run)
        return counted if before is None or now is None or before == now else min(counted, now - before)

    def _iterations_now(self, run: SavedRun) -> int | None:
        if self._backend != "tensorflow" or run.net.steps_per_execution == 1 or not run.is_of_unknown_length:
            return None
        return None if isinstance(run.net.optimizer, LossScaleOptimizer) else int(run.net.optimizer._iterations)


class Keras3Checkpoints(FitCheckpoints, keras.callbacks.Callback):  # type: ignore[misc]
    """`FitCheckpoints` for Keras 3."""

    def _make_generation(self) -> Generation:
        tell_of_calls(keras.Model, Keras3Checkpoints, keras.tree.flatten)
        return Keras3()
