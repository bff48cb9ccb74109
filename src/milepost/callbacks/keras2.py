"""The callback for Keras 2: ``tf_keras``, or the ``keras`` of TensorFlow 2.15 and before."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from milepost.callbacks.checkpoints import FitCheckpoints
from milepost.callbacks.compiled import compiled
from milepost.callbacks.feed import Feed
from milepost.callbacks.resumable import Trainer
from milepost.callbacks.running import FirstEpoch, RunningFit
from milepost.callbacks.tensorflow_data import dataset_of, is_of_arrays, trace
from milepost.errors import warn


class FirstCounters(FirstEpoch):
    """The object that Keras 2 asks for the first epoch and batch."""

    def __init__(self, model: Any, epoch: int, fit: RunningFit) -> None:
        super().__init__(model, epoch, fit)
        self.replaced = getattr(model, "_training_state", None)
        model._training_state = self

    def maybe_load_initial_counters_from_ckpt(self, steps: Any, initial_epoch: int, *_: Any, **__: Any) -> Any:
        """The epoch and the batch."""
        asking = sys._getframe(2)  # fit() asks through a method of the model
        self.remove()
        return (self._epoch if self._fit.is_called_from_it(asking) else initial_epoch), 0

    def remove(self) -> None:
        """Restores the original attribute of the model."""
        self._model._training_state = self.replaced


def _warn_of_stateful_random_numbers(model: Any) -> None:
    names = [
        layer.name
        for layer in model._flatten_layers()
        if getattr(getattr(layer, "_random_generator", None), "_rng_type", None) == "legacy_stateful"
        and any(getattr(layer, name, None) for name in ("rate", "dropout", "recurrent_dropout", "stddev"))
    ]
    if names:
        warn(
            f"a resumed run draws different random numbers in {', '.join(names)}: call "
            "keras.backend.experimental.enable_tf_random_generator() before making these layers"
        )


def keras2_checkpoints(keras: ModuleType) -> type[FitCheckpoints]:  # noqa: C901 - the methods of its class count too
    """`FitCheckpoints` for the trainer of a Keras 2 package."""

    class Keras2Checkpoints(FitCheckpoints, keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def _trainer(self) -> Trainer:
            return Trainer(keras.backend.floatx(), in_tensorflow=True, one_iterator=True)

        def _readable(self, data: Any) -> Any:
            self._dataset = dataset_of(data) if isinstance(data, Feed) else data
            return self._dataset

        def _continue_at_epoch(self, epoch: int) -> None:
            FirstCounters(self.model, epoch, self._running)

        def _leave_epoch_to_fit(self) -> None:
            state = getattr(self.model, "_training_state", None)
            if isinstance(state, FirstCounters):
                state.remove()

        def _without_effect(self) -> Any:
            return keras.callbacks.Callback()

        def set_model(self, model: Any) -> None:
            super().set_model(model)
            self._program = compiled(model)  # before any callback changes it

        def _begin(self) -> None:
            _warn_of_stateful_random_numbers(self.model)
            given = self._running.arguments
            if self._data is None and given.get("shuffle") and is_of_arrays(given.get("x")):
                warn(
                    "fit() shuffles these arrays in an order that no checkpoint can continue, so a resumed run reads them in "
                    "another order: pass callback.resumable(x, y) to fit(), or shuffle=False"
                )
            super()._begin()

        def _place_of_trainer(self) -> dict[str, Any] | None:
            reader = self._running.reader
            if reader is None:
                return None
            return {"length": reader._inferred_steps, "is over": reader._insufficient_data}

        def _set_place_of_trainer(self, place: dict[str, Any]) -> None:
            reader = self._running.reader
            if reader is not None:
                if reader._inferred_steps is None:
                    reader._inferred_steps = place["length"]
                reader._insufficient_data = place["is over"]

        def _other_objects(self) -> dict[str, Any]:
            # Keras 2 keeps compiled metrics where TensorFlow's tracking does not look.
            return {"metrics": list(self.model.metrics)}

        def _make_everything(self) -> bool:
            if self._data is not None:
                self._data.rewind()  # an earlier run may have been interrupted after the last batch of its pass
            has_trained = trace(self.model.train_function, self._dataset)
            if self._data is not None:
                self._data.rewind()
            return has_trained

        def _make_for_the_end(self) -> bool:
            # fit() then gives the variables of the model to the optimizer, even if it has trained nothing.
            if not self.model.built:
                return self._data is not None and self._make_everything()
            if hasattr(self.model.optimizer, "build"):
                self.model.optimizer.build(self.model.trainable_variables)
            return False

        # In the first epoch over data of unknown length, Keras 2 runs a step that fails because no data is left. TensorFlow
        # counts it in the optimizer's iterations, once in each process.

        def _after_step(self) -> None:
            if self._is_first_step:
                # Metrics are made in this step and have counted it. Between epochs their saved values are zero.
                held: Any = self._checkpoint
                with self._metrics_kept():
                    held.metrics.extend(self.model.metrics[len(held.metrics) :])
            if self.params.get("steps") is None:
                self._counted_steps = int(self.model.optimizer.iterations)

        def _after_epoch(self) -> None:
            if self.params.get("steps") is None:
                self.model.optimizer.iterations.assign(self._counted_steps)

    return Keras2Checkpoints
