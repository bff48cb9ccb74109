"""Programs of Keras 3, of Keras 2, and of TensorFlow without either."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from benchmarks.versions.training import EVERY, Run, batch, loop


def fit(run: Run, library: str, module: str) -> None:
    """Trains with ``fit()``.

    Args:
        run: The process of the run.
        library: What the program imports as Keras.
        module: The module of milepost that has the callback for it.
    """
    keras: Any = importlib.import_module(library)
    keras.utils.set_random_seed(0)
    if hasattr(keras.backend, "experimental"):
        keras.backend.experimental.enable_tf_random_generator()
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.2), layers.Dense(1)]
    )
    model.compile(optimizer="adam", loss="mse")
    inputs = np.concatenate([batch(number)[0] for number in range(4)])
    data: Any = (inputs, inputs.sum(axis=1, keepdims=True))

    begun: list[int] = []  # not an attribute of the callback, which a restore would restore

    class Watch(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, number: int, logs: Any = None) -> None:
            values, step = weights(), iterations()
            if step and not begun:
                begun.append(step)
                run.begin(step, values)

        def on_train_batch_end(self, number: int, logs: Any = None) -> None:
            values = weights()
            if not getattr(checkpoints, "is_catching_up", False):
                run.after(iterations(), values)

    def iterations() -> int:
        return int(np.asarray(model.optimizer.iterations))

    def weights() -> list[Any]:
        if hasattr(model, "jax_state_sync"):
            model.jax_state_sync()  # until then, JAX's step has the values, and the variables have none
        return list(model.get_weights())

    checkpoints: Any = None
    if run.without:
        model.fit(*data, batch_size=8, epochs=3, verbose=0, callbacks=[Watch()])
    else:
        checkpoints = importlib.import_module(module).CheckpointCallback(
            run.saves, every_steps=EVERY, every_epochs=None
        )
        data = checkpoints.resumable(*data, batch_size=8, seed=0)
        model.fit(data, epochs=3, verbose=0, callbacks=[checkpoints, Watch()])
    variables = model.optimizer.variables
    memory = (
        [np.asarray(each) for each in (variables() if callable(variables) else variables)] if library != "keras" else []
    )
    run.end([*weights(), *memory])


def with_keras(run: Run) -> None:
    """Keras on the backend that the environment says."""
    fit(run, "keras", "milepost.keras")


def with_tf_keras(run: Run) -> None:
    """Keras 2 beside Keras 3."""
    fit(run, "tf_keras", "milepost.tf_keras")


def on(backend: str) -> Callable[[Run], None]:
    """The program with Keras on a backend."""

    def program(run: Run) -> None:
        os.environ["KERAS_BACKEND"] = backend  # before Keras is imported
        with_keras(run)

    return program


def with_tensorflow(run: Run) -> None:
    """TensorFlow without Keras: variables, a ``tf.function`` and the global random state."""
    import tensorflow as tf

    tf.random.set_seed(0)
    net = tf.Module()
    net.kernel, net.bias = tf.Variable(tf.random.normal((4, 1))), tf.Variable(tf.zeros(1))
    net.momentum = [tf.Variable(tf.zeros_like(each)) for each in (net.kernel, net.bias)]

    @tf.function  # type: ignore[untyped-decorator]
    def train(inputs: Any, targets: Any, noise: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((inputs @ net.kernel + net.bias + noise - targets) ** 2)
        for variable, moved, grad in zip(
            (net.kernel, net.bias), net.momentum, tape.gradient(loss, (net.kernel, net.bias)), strict=True
        ):
            moved.assign(0.9 * moved + grad)
            variable.assign_sub(0.01 * moved)

    def step(number: int) -> None:
        train(*batch(number), tf.random.normal((8, 1)))

    loop(
        run,
        {"net": net},
        step,
        lambda: [net.kernel.numpy(), net.bias.numpy(), *(each.numpy() for each in net.momentum)],
    )


PROGRAMS: Final[Mapping[str, Callable[[Run], None]]] = {
    "keras": with_keras,
    "keras on TensorFlow": on("tensorflow"),
    "keras on JAX": on("jax"),
    "keras on PyTorch": on("torch"),
    "tf_keras": with_tf_keras,
    "tensorflow": with_tensorflow,
}
