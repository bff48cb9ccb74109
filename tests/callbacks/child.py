"""Trains small models in a process of its own, which may be killed, and writes what came out as JSON.

Called with one JSON argument, the arguments of `main`.
"""

import importlib
import json
import os
import signal
import sys
import warnings

import numpy as np

import milepost

ROWS, BATCH = 22, 4
X = np.random.RandomState(0).rand(ROWS, 3).astype("float32")
Y = (X.sum(axis=1, keepdims=True) * 3 - 1).astype("float32")


class Interrupted(BaseException):
    """Ends a run as an exception of the program does."""


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


def dataset(repeat=False, seed=4):
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensor_slices((X, Y))
    return (rows.repeat() if repeat else rows).shuffle(9, seed=seed).batch(BATCH).prefetch(2)


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

    torch.manual_seed(1)  # keras.utils.set_random_seed() does so under PyTorch only
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    return torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)


def is_keras_3(keras):
    return int(keras.__version__.partition(".")[0]) >= 3


def model_of(keras, kind):
    layers = keras.layers
    # Keras 2 takes the random numbers of this layer from where nobody can save them.
    stack = [layers.Dense(8, activation="relu"), *([layers.Dropout(0.2)] if is_keras_3(keras) else []), layers.Dense(1)]
    if kind == "sequential":
        return keras.Sequential(stack)

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.last = stack[0], stack[-1]
            self.norm = layers.BatchNormalization()

        def call(self, x, training=None):
            return self.last(self.norm(self.first(x), training=training))

    return Net()


def data_of(keras, callback, kind):
    """What is passed to fit(), and its other arguments."""
    if kind == "arrays":
        return callback.resumable(X, Y, batch_size=BATCH, seed=7), {}
    if kind == "part of a pass":
        return callback.resumable(X, Y, batch_size=BATCH, seed=7), {"steps_per_epoch": 4}
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
    return X, {"y": Y, "batch_size": BATCH}


def train(keras, callbacks, directory, data="arrays", model="sequential", options=None, stop=None, compiled=None):
    """One run of fit(), which ends as ``stop`` says: how, and after how many batches."""
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
            if callback.is_catching_up:
                return
            seen.append([batch, float(logs["loss"])])
            if stop and len(seen) == stop[1]:
                if stop[0] == "raise":
                    raise Interrupted
                os.kill(os.getpid(), {"kill": signal.SIGKILL, "term": signal.SIGTERM}[stop[0]])

    before = signal.getsignal(signal.SIGTERM)
    x, arguments = data_of(keras, callback, data)
    history = net.fit(
        x, epochs=3, verbose=0, validation_data=(X, Y), callbacks=[Recorder(), callback], **arguments
    )  # fmt: skip
    return {
        "losses": seen,
        "history": history.history,
        "epochs": history.epoch,
        "weights": [weight.tobytes().hex() for weight in net.get_weights()],
        "terminated": callback.was_terminated,
        "handler is back": signal.getsignal(signal.SIGTERM) is before,
        "initial epoch": getattr(net, "_initial_epoch", None),
    }


def main(package, directory, runs, result):
    """Does several runs, by name, each with a directory of its own."""
    keras = importlib.import_module(package)
    callbacks = importlib.import_module(f"milepost.{package}")
    # Keras warns of runs of unknown length whenever an epoch ends.
    warnings.filterwarnings("ignore", message="Your input ran out of data")
    outcomes = {}
    for name, arguments in runs.items():
        try:
            outcomes[name] = train(keras, callbacks, os.path.join(directory, name), **arguments)
        except Interrupted:
            outcomes[name] = "interrupted"
    with open(result, "w") as file:
        json.dump(outcomes, file)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
