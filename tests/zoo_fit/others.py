"""The callbacks that stand beside milepost's in the list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Others:
    """Callbacks of a run.

    Attributes:
        make: Called with the package of Keras and the directory of the run.
        optimizer: Further arguments of the optimizer.
        keras3: Whether Keras 2 has no such callback.
        said: A sentence of ``docs/keras_fit.md`` which says that it is inexact, and why.
    """

    make: Callable[[Any, Path], list[Any]]
    optimizer: dict[str, Any] = field(default_factory=dict)
    keras3: bool = False
    said: str = ""


def _counter(keras: Any) -> Any:
    class Counter(keras.callbacks.Callback):
        """Counts batches and epochs, and lowers the learning rate after the sixth batch."""

        batches = epochs = 0

        def on_train_batch_end(self, batch, logs=None):
            self.batches += 1
            if self.batches == 6:
                self.model.optimizer.learning_rate = 0.001

        def on_epoch_end(self, epoch, logs=None):
            self.epochs += 1

    return Counter()


def _keeping_counter(keras: Any) -> Any:
    class Counter(keras.callbacks.Callback):
        """Counts epochs, and has state that can be saved."""

        def __init__(self):
            super().__init__()
            self.epochs = 0

        def on_epoch_end(self, epoch, logs=None):
            self.epochs += 1
            self.model.optimizer.learning_rate = 0.01 / (1 + self.epochs)

        def get_state(self):
            return {"epochs": self.epochs}

        def set_state(self, state):
            self.epochs = state["epochs"]

    return Counter()


def _limit(keras: Any, steps: int) -> Any:
    class Limit(keras.callbacks.Callback):
        """Ends the run after so many steps of the optimizer."""

        def on_train_batch_end(self, batch, logs=None):
            if int(self.model.optimizer.iterations) >= steps:
                self.model.stop_training = True

    return Limit()


_WORSE = {"monitor": "val_loss", "min_delta": 10.0}
OTHERS: dict[str, Others] = {
    "none": Others(lambda keras, directory: []),
    "`EarlyStopping` that waits": Others(
        lambda keras, directory: [keras.callbacks.EarlyStopping(**_WORSE, patience=5)],
    ),
    "`EarlyStopping` that ends the run": Others(
        lambda keras, directory: [keras.callbacks.EarlyStopping(**_WORSE, patience=1)],
    ),
    "`EarlyStopping(restore_best_weights=True)`": Others(
        lambda keras, directory: [
            keras.callbacks.EarlyStopping(monitor="val_loss", mode="max", patience=2, restore_best_weights=True)
        ],
    ),
    "`ReduceLROnPlateau`": Others(
        lambda keras, directory: [keras.callbacks.ReduceLROnPlateau(**_WORSE, factor=0.5, patience=2)],
    ),
    "`ReduceLROnPlateau` with `cooldown`": Others(
        lambda keras, directory: [keras.callbacks.ReduceLROnPlateau(**_WORSE, factor=0.5, patience=1, cooldown=2)],
    ),
    "`LearningRateScheduler`": Others(
        lambda keras, directory: [keras.callbacks.LearningRateScheduler(lambda epoch, rate: float(rate * 0.7))],
    ),
    "`ModelCheckpoint(save_best_only=True)`": Others(
        lambda keras, directory: [
            keras.callbacks.ModelCheckpoint(
                str(directory / "best.weights.h5"),
                monitor="val_loss",
                mode="max",
                save_best_only=True,
                save_weights_only=True,
            )
        ],
    ),
    "`BackupAndRestore`": Others(
        lambda keras, directory: [keras.callbacks.BackupAndRestore(str(directory / "backup"))],
    ),
    "`SwapEMAWeights`, each epoch": Others(
        lambda keras, directory: [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)],
        {"use_ema": True, "ema_momentum": 0.8},
        keras3=True,
    ),
    "`SwapEMAWeights`, for tests": Others(
        lambda keras, directory: [keras.callbacks.SwapEMAWeights()], {"use_ema": True, "ema_momentum": 0.8}, keras3=True
    ),
    "an average that overwrites the weights": Others(
        lambda keras, directory: [], {"use_ema": True, "ema_momentum": 0.8, "ema_overwrite_frequency": 3}
    ),
    "`CSVLogger(append=True)`": Others(
        lambda keras, directory: [keras.callbacks.CSVLogger(str(directory / "log.csv"), append=True)],
    ),
    "`TerminateOnNaN`": Others(lambda keras, directory: [keras.callbacks.TerminateOnNaN()]),
    "a counter of batches": Others(lambda keras, directory: [_counter(keras)]),
    "a counter with `get_state`": Others(lambda keras, directory: [_keeping_counter(keras)]),
    "a limit of steps in mid-epoch": Others(lambda keras, directory: [_limit(keras, 6)]),
    "a limit of steps at an epoch's end": Others(lambda keras, directory: [_limit(keras, 8)]),
}


_WATCHED = (
    *("best", "wait", "stopped_epoch", "best_epoch", "cooldown_counter", "best_weights"),
    *("batches", "epochs", "_ema_weights_in_model", "epochs_since_last_save", "monitor_op"),
)


def state_of_others(others: list[Any], directory: Path) -> list[dict[str, Any]]:
    """What the callbacks know at the end of a run, and what they wrote."""
    found: list[dict[str, Any]] = [
        {name: _plain(getattr(each, name)) for name in _WATCHED if hasattr(each, name) and name != "monitor_op"}
        for each in others
    ]
    log = directory / "log.csv"
    return [*found, {"log": log.read_text() if log.exists() else None, "best": _hdf5(directory / "best.weights.h5")}]


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return np.asarray(value).tolist()


def _hdf5(path: Path) -> Any:
    if not path.exists():
        return None
    import h5py

    arrays: dict[str, Any] = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, each: arrays.update({name: each[()].tolist()}) if isinstance(each, h5py.Dataset) else None
        )
    return [arrays[name] for name in sorted(arrays) if "optimizer" not in name]
