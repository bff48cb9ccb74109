"""Trains a small model in a process of its own, which may be killed, and writes what came out as JSON.

Called with one JSON argument: ``package`` (``keras`` or ``tf_keras``), ``directory``, ``result``, and those of `main`.
"""

import importlib
import json
import os
import signal
import sys

import numpy as np

import milepost

ROWS, BATCH = 22, 4
X = np.random.RandomState(0).rand(ROWS, 3).astype("float32")
Y = (X.sum(axis=1, keepdims=True) * 3 - 1).astype("float32")


class Readings:
    """Endless batches at random, from a generator whose state is given as a dict."""

    def __init__(self):
        self._random = np.random.default_rng(3)

    def __iter__(self):
        return self

    def __next__(self):
        rows = self._random.integers(0, ROWS, BATCH)
        return X[rows], Y[rows]

    def get_state(self):
        return self._random.bit_generator.state

    def set_state(self, state):
        self._random.bit_generator.state = state


class Walk(milepost.Module):
    """Endless batches in order, from a position that is a variable."""

    def __init__(self):
        self.position = milepost.Variable(np.int64(0))

    def __iter__(self):
        return self

    def __next__(self):
        rows = (int(self.position) + np.arange(BATCH)) % ROWS
        self.position.assign_add(BATCH)
        return X[rows], Y[rows]


class Rereadable:
    """Passes over batches in an order that NumPy's global generator gives."""

    def __iter__(self):
        for rows in np.array_split(np.random.permutation(ROWS), 6):
            yield X[rows], Y[rows]


def dataset(repeat=False):
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensor_slices((X, Y))
    return (rows.repeat() if repeat else rows).shuffle(9, seed=4).batch(BATCH).prefetch(2)


def numbered(keras):
    base = getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence

    class Numbered(base):
        def __len__(self):
            return 6

        def __getitem__(self, number):
            rows = slice(number * BATCH, (number + 1) * BATCH)
            return X[rows], Y[rows]

    return Numbered()


def loader():
    import torch

    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    return torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)


def model_of(keras, kind):
    layers = keras.layers
    dropout = [layers.Dropout(0.2)] if keras.__name__ == "keras" and keras.__version__ >= "3" else []
    stack = [layers.Dense(8, activation="relu"), *dropout, layers.Dense(1)]
    if kind == "sequential":
        return keras.Sequential(stack)

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.stack = stack

        def call(self, x, training=None):
            for layer in self.stack:
                x = layer(x, training=training) if "dropout" in layer.name else layer(x)
            return x

    return Net()


def data_of(keras, callback, kind):
    """What is passed to fit(), and its other arguments."""
    if kind == "arrays":
        return callback.resumable(X, Y, batch_size=BATCH, seed=7), {}
    if kind == "dataset":
        return callback.resumable(dataset()), {}
    if kind == "endless dataset":
        return callback.resumable(dataset(repeat=True)), {"steps_per_epoch": 5}
    if kind == "numbered":
        return callback.resumable(numbered(keras), seed=7), {}
    if kind == "loader":
        return callback.resumable(loader()), {}
    if kind == "rereadable":
        return callback.resumable(Rereadable()), {}
    if kind == "readings":
        return callback.resumable(Readings()), {"steps_per_epoch": 6}
    if kind == "walk":
        return callback.resumable(Walk()), {"steps_per_epoch": 6}
    assert kind == "plain"
    return X, {"y": Y, "batch_size": BATCH, "shuffle": kind == "shuffled"}


def main(
    package, directory, result, data="arrays", model="sequential", epochs=4, options=None, kill=None, term=None,
    compiled=None,
):  # fmt: skip
    keras = importlib.import_module(package)
    callbacks = importlib.import_module(f"milepost.{package}")
    keras.utils.set_random_seed(1)
    net = model_of(keras, model)
    net.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"], **(compiled or {}))
    options = {"every_steps": 4, **(options or {})}
    if options.pop("asynchronous", False):
        options["options"] = milepost.CheckpointOptions(enable_async=True)
    callback = callbacks.CheckpointCallback(directory, **options)
    seen = []

    class Recorder(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if not callback.is_catching_up:
                seen.append([batch, float(logs["loss"])])
            if len(seen) == kill:
                print(json.dumps(seen), flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            if len(seen) == term:
                os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    x, arguments = data_of(keras, callback, data)
    history = net.fit(
        x, epochs=epochs, verbose=0, validation_data=(X, Y), callbacks=[Recorder(), callback], **arguments
    )
    outcome = {
        "losses": seen,
        "history": history.history,
        "epochs": history.epoch,
        "weights": [weight.tobytes().hex() for weight in net.get_weights()],
        "terminated": callback.was_terminated,
        "handler is back": signal.getsignal(signal.SIGTERM) is before,
        "checkpoints": [os.path.basename(path) for path in callback.manager.checkpoints],
        "best": callback.best_checkpoint,
    }
    with open(result, "w") as file:
        json.dump(outcome, file)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
