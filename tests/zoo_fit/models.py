"""The models that are trained: tiny, because making and compiling them takes nearly all of the time.

Those that most rows train begin with weights that are not random: JAX compiles each operation that draws them.
"""

from __future__ import annotations

from typing import Any

MODELS = ("linear", "built", "not built", "subclassed", "dropout and batch normalization")


def make_model(keras: Any, kind: str, dict_inputs: bool) -> Any:
    """A model, not compiled yet."""
    layers = keras.layers
    if dict_inputs:
        a, b = keras.Input((3,), name="a"), keras.Input((1,), name="b")
        return keras.Model({"a": a, "b": b}, layers.Dense(1)(layers.Concatenate()([a, b])))
    if kind == "linear":
        return keras.Sequential([keras.Input((3,)), layers.Dense(1, kernel_initializer="ones")])
    if kind == "built":
        first = layers.Dense(2, activation="tanh", kernel_initializer="identity")
        return keras.Sequential([keras.Input((3,)), first, layers.Dense(1, kernel_initializer="ones")])
    if kind == "not built":
        return keras.Sequential([layers.Dense(2, activation="tanh"), layers.Dense(1)])
    if kind == "dropout and batch normalization":
        if int(keras.__version__.partition(".")[0]) < 3:
            keras.backend.experimental.enable_tf_random_generator()
        stack = [layers.Dense(4), layers.BatchNormalization(), layers.Dropout(0.3), layers.GaussianNoise(0.1)]
        return keras.Sequential([keras.Input((3,)), *stack, layers.Dense(1)])
    assert kind == "subclassed"

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.last = layers.Dense(2, activation="tanh"), layers.Dense(1)

        def call(self, x):
            return self.last(self.first(x))

    return Net()
