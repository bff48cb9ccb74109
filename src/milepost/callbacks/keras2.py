"""The callback for Keras 2, be it ``tf_keras`` or the ``keras`` of TensorFlow 2.15 and before."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from milepost.callbacks.checkpoints import FitCheckpoints
from milepost.callbacks.feed import Feed
from milepost.callbacks.resumable import Trainer
from milepost.callbacks.tensorflow_data import dataset_of, trace
from milepost.errors import warn


class _Counters:
    """What Keras 2 asks for the epoch and the batch to begin with."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def maybe_load_initial_counters_from_ckpt(self, *_: Any, **__: Any) -> tuple[int, int]:
        return self._epoch, 0


def _warn_of_stateful_random_numbers(model: Any) -> None:
    names = [
        layer.name
        for layer in model._flatten_layers()
        if getattr(getattr(layer, "_random_generator", None), "_rng_type", None) == "legacy_stateful"
        and any(getattr(layer, name, None) for name in ("rate", "dropout", "recurrent_dropout", "stddev"))
    ]
    if names:
        warn(
            f"a resumed run draws other random numbers in {', '.join(names)}: call "
            "keras.backend.experimental.enable_tf_random_generator() before making these layers"
        )


def keras2_checkpoints(keras: ModuleType) -> type[FitCheckpoints]:
    """`FitCheckpoints` under the trainer of a Keras 2 package."""

    class Keras2Checkpoints(FitCheckpoints, keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def _trainer(self) -> Trainer:
            return Trainer(keras.backend.floatx(), in_tensorflow=True)

        def _readable(self, data: Any) -> Any:
            self._dataset = dataset_of(data) if isinstance(data, Feed) else data
            return self._dataset

        def _continue_at_epoch(self, epoch: int) -> None:
            self.model._training_state = _Counters(epoch)

        def _leave_epoch_to_fit(self) -> None:
            self.model._training_state = None

        def on_train_begin(self, logs: Any = None) -> None:
            _warn_of_stateful_random_numbers(self.model)
            super().on_train_begin(logs)

        def _other_objects(self) -> dict[str, Any]:
            # Keras 2 keeps compiled metrics where TensorFlow's tracking does not look.
            return {"metrics": list(self.model.metrics)}

        def _make_everything(self) -> None:
            trace(self.model.train_function, self._dataset)
            if self._data is not None:
                self._data.rewind()

        # In the first epoch over data of unknown length, Keras 2 runs a step that fails for want of data. TensorFlow
        # counts it in the optimizer's iterations, once in each process.

        def _after_step(self) -> None:
            if self.params.get("steps") is None:
                self._iterations = int(self.model.optimizer.iterations)

        def _after_epoch(self) -> None:
            if self.params.get("steps") is None:
                self.model.optimizer.iterations.assign(self._iterations)

    return Keras2Checkpoints
