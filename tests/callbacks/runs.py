"""Small runs of ``fit()`` in the process of a test, with either generation of Keras."""

import importlib
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest

X = np.random.RandomState(0).rand(32, 3).astype("float32")
Y = (X.sum(axis=1, keepdims=True) * 3 - 1).astype("float32")


class Interrupted(Exception):  # noqa: N818 - it is none
    """Ends a run as an exception of the program does."""


class Trainer:
    """A generation of Keras, and how to train a small model with it."""

    def __init__(self, package):
        self.keras = pytest.importorskip(package)
        self.callbacks = importlib.import_module(f"milepost.{package}")

    @property
    def name(self):
        return self.keras.__name__

    @property
    def is_keras_3(self):
        return self.keras.__version__.startswith("3")

    def model(self, rate=0.01, optimizer="SGD", metrics=("mae",), is_compiled=False, **compiled):
        """A model with an optimizer that keeps a momentum of each variable.

        Its steps run as functions of TensorFlow only if ``is_compiled``: tracing them would take most of a test's time.
        """
        self.keras.utils.set_random_seed(1)
        model = self.keras.Sequential([self.keras.Input((3,)), self.keras.layers.Dense(1)])
        kind = getattr(self.keras.optimizers, optimizer)
        made = kind(rate, momentum=0.9) if optimizer == "SGD" else kind(rate)
        model.compile(optimizer=made, loss="mse", metrics=list(metrics), run_eagerly=not is_compiled, **compiled)
        return model

    def callback(self, directory, **options):
        return self.callbacks.CheckpointCallback(directory, **options)

    def fit(self, model, callback, *others, epochs=3, data=None, last=True, **arguments):
        data = callback.resumable(X, Y, batch_size=8, seed=1) if data is None else data
        callbacks = [*others, callback] if last else [callback, *others]
        return model.fit(data, epochs=epochs, verbose=0, callbacks=callbacks, **arguments)

    def on(self, event, function):
        """A callback that calls a function with the epoch or batch of an event."""

        def method(self, number=None, logs=None):
            function(number)

        return type("On", (self.keras.callbacks.Callback,), {event: method})()

    def raising(self, event, number):
        """A callback that ends the run in one epoch or batch, once."""
        left = [True]

        def check(now):
            if left and number in (None, now):
                left.clear()
                raise Interrupted

        return self.on(event, check)

    def value(self, variable):
        return np.asarray(self.keras.backend.get_value(variable) if not self.is_keras_3 else variable.numpy())


def weights(model):
    return [weight.tobytes() for weight in model.get_weights()]


@pytest.fixture(scope="module")
def computed() -> Callable[[Hashable, Callable[[], Any]], Any]:
    """Gives what a function returns, which is called once for each key: several tests compare theirs with one whole run."""
    results: dict[Hashable, Any] = {}

    def get(key: Hashable, compute: Callable[[], Any]) -> Any:
        if key not in results:
            results[key] = compute()
        return results[key]

    return get


@pytest.fixture(params=["keras", "tf_keras"])
def trainer(request):
    return Trainer(request.param)
