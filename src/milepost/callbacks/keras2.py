"""The callback for Keras 2: ``tf_keras``, or the ``keras`` of TensorFlow 2.15 and before."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import tensorflow as tf

from milepost.callbacks.checkpoints import FitCheckpoints
from milepost.callbacks.data.feed import Data, Feed
from milepost.callbacks.data.resumable import Trainer
from milepost.callbacks.data.tensorflow_data import dataset_of, is_of_arrays, trace
from milepost.callbacks.fit import FitCall, tell_of_calls
from milepost.callbacks.generations import Generation
from milepost.callbacks.runs import SavedRun
from milepost.errors import warn


class Keras2(Generation):
    """The trainer of a Keras 2 package.

    Args:
        floatx: The type of its floating-point numbers.
    """

    ends_with_data = True

    def __init__(self, floatx: str) -> None:
        self.reads = Trainer(floatx, in_tensorflow=True, one_iterator=True)
        self._dataset: Any = None
        self._counted_steps = 0

    def readable(self, data: Any) -> Any:
        self._dataset = dataset_of(data) if isinstance(data, Feed) else data
        return self._dataset

    def start_at(self, model: Any, epoch: int) -> None:
        state = getattr(model, "_training_state", None)  # that of BackupAndRestore
        if state is not None:
            state.maybe_load_initial_counters_from_ckpt = lambda *_, **__: (epoch, 0)

    def check(self, call: FitCall, data: Data | None) -> None:
        _warn_of_stateful_random_numbers(call.model)
        if data is None and call.arguments.get("shuffle") and is_of_arrays(call.arguments.get("x")):
            warn(
                "fit() shuffles these arrays in an order that no checkpoint can continue, so a resumed run reads them in "
                "another order: pass callback.resumable(x, y) to fit(), or shuffle=False"
            )

    def other_objects(self, model: Any) -> dict[str, Any]:
        # Keras 2 keeps compiled metrics where TensorFlow's tracking does not look.
        return {"metrics": list(model.metrics)}

    def make_everything(self, model: Any, data: Data) -> bool:
        data.rewind()  # an earlier run may have been interrupted after the last batch of its pass
        has_trained = trace(model.train_function, self._dataset)
        data.rewind()
        return has_trained

    def make_for_the_end(self, model: Any, data: Data | None) -> bool:
        # fit() then gives the variables of the model to the optimizer, even if it has trained nothing.
        if not model.built:
            return data is not None and self.make_everything(model, data)
        if hasattr(model.optimizer, "build"):
            model.optimizer.build(model.trainable_variables)
        return False

    # In the first epoch over data of unknown length, Keras 2 runs a step that fails because no data is left. TensorFlow
    # counts it in the optimizer's iterations, once in each process.

    def after_step(self, run: SavedRun) -> None:
        if run.is_first_step:
            # Metrics are made in this step and have counted it. Between epochs their saved values are zero.
            with run.metrics_kept():
                run.checkpoint.metrics.extend(run.net.metrics[len(run.checkpoint.metrics) :])
        if run.steps is None:
            self._counted_steps = int(run.net.optimizer.iterations)

    def after_epoch(self, run: SavedRun) -> None:
        if run.steps is None:
            run.net.optimizer.iterations.assign(self._counted_steps)


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


def keras2_checkpoints(keras: ModuleType) -> type[FitCheckpoints]:
    """`FitCheckpoints` for a Keras 2 package."""

    class Keras2Checkpoints(FitCheckpoints, keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def _make_generation(self) -> Generation:
            tell_of_calls(keras.Model, Keras2Checkpoints, tf.nest.flatten)
            return Keras2(keras.backend.floatx())

    return Keras2Checkpoints
