"""Models that both generations of Keras can make, and a process that saves or loads their weights on any backend.

``python -m tests.interop.keras_weights DIRECTORY``, with KERAS_BACKEND set: loads what it finds in ``DIRECTORY/theirs``, and
prints as JSON which predictions came out as recorded there; saves models of its own, with predictions, to ``DIRECTORY/ours``.
"""

import json
import sys
from pathlib import Path

import numpy as np

import milepost

X = np.random.RandomState(0).rand(8, 3).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def sequential(k):
    return k.Sequential([k.layers.Dense(4, activation="relu"), k.layers.BatchNormalization(), k.layers.Dense(1)])


def functional(k):
    inputs = k.Input((3,))
    both = k.layers.Add()([k.layers.Dense(4)(inputs), k.layers.Dense(4)(inputs)])
    return k.Model(inputs, k.layers.Dense(1)(both))


def subclassed(k):
    class Net(k.Model):
        def __init__(self):
            super().__init__()
            self.hidden = k.layers.Dense(4)
            self.out = k.layers.Dense(1)

        def call(self, x):
            return self.out(self.hidden(x))

    return Net()


def nested(k):
    class Outer(k.Model):
        def __init__(self):
            super().__init__()
            self.inner = sequential(k)
            self.out = k.layers.Dense(1)

        def call(self, x):
            return self.out(self.inner(x))

    return Outer()


MODELS = {make.__name__: make for make in (sequential, functional, subclassed, nested)}


COMPILED = ("subclassed",)
"""Trained in compiled steps, as by default. The others' run eagerly on TensorFlow: tracing takes most of the time."""


def trained(k, model, compiled=True):
    net = MODELS[model](k)
    predictions(net)
    if compiled:
        is_eager = model not in COMPILED and (k.__name__ != "keras" or k.backend.backend() == "tensorflow")
        net.compile(optimizer=k.optimizers.Adam(0.01), loss="mse", run_eagerly=is_eager)
        net.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
    return net


def predictions(net):
    return np.asarray(net.predict(X, verbose=0))


def main(theirs, ours):
    import keras

    found = {}
    for model in MODELS:
        expected = np.load(theirs / f"{model}.npy")
        for built in (True, False):
            net = MODELS[model](keras)
            if built:
                predictions(net)
            status = milepost.Checkpoint(net).read(theirs / model)
            close = bool(np.allclose(predictions(net), expected, rtol=1e-5, atol=1e-6))
            status.expect_partial().assert_existing_objects_matched()
            found[f"{model} {'built' if built else 'not built'}"] = close
        net = trained(keras, model)
        np.save(ours / f"{model}.npy", predictions(net))
        milepost.Checkpoint(net).write(ours / model)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
