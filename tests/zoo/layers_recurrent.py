"""Recipes of recurrent layers, their cells, and wrappers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.zoo.recipe import FILM, SEQUENCE, SMALL_IMAGE, VECTOR, VOLUME, Recipe, keras, of, recipe

L: Any = keras.layers
STATE = np.full((4, 3), 0.1, "float32")
NAMES = ("SimpleRNN", "GRU", "LSTM")


class CustomCell(L.Layer):
    """A user's own cell."""

    state_size = 3
    output_size = 3

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 3), name="kernel")

    def call(self, inputs, states):
        output = keras.ops.tanh(keras.ops.matmul(inputs, self.kernel) + states[0])
        return output, [output]


class CustomWrapper(L.Wrapper):
    """A user's own wrapper."""

    def call(self, x):
        return self.layer(x) * 2


RECURRENT: dict[str, list[Recipe]] = {
    name: [
        recipe(of(L, name, 3), SEQUENCE),
        recipe(of(L, name, 3, stateful=True), SEQUENCE, variant="stateful"),
        recipe(
            of(L, name, 3, dropout=0.3, recurrent_dropout=0.3, seed=4),
            SEQUENCE,
            variant="dropout",
            trains=True,
        ),
    ]
    for name in NAMES
}

CELLS: dict[str, list[Recipe]] = {
    "SimpleRNNCell": [recipe(lambda: L.SimpleRNNCell(3), VECTOR, [STATE])],
    "GRUCell": [recipe(lambda: L.GRUCell(3), VECTOR, [STATE])],
    "LSTMCell": [recipe(lambda: L.LSTMCell(3), VECTOR, [STATE, STATE])],
    "StackedRNNCells": [
        recipe(lambda: L.StackedRNNCells([L.GRUCell(3), L.LSTMCell(3)]), VECTOR, [STATE, [STATE, STATE]])
    ],
    "RNN": [
        recipe(lambda: L.RNN(L.LSTMCell(3)), SEQUENCE),
        recipe(lambda: L.RNN(CustomCell()), SEQUENCE, variant="custom cell"),
        recipe(lambda: L.RNN([L.GRUCell(2), CustomCell(), L.LSTMCell(2)]), SEQUENCE, variant="stacked cells"),
        recipe(lambda: L.RNN([L.GRUCell(2), L.LSTMCell(2)], stateful=True), SEQUENCE, variant="stacked, stateful"),
    ],
}

CONVOLUTIONAL: dict[str, list[Recipe]] = {
    "ConvLSTM1D": [recipe(lambda: L.ConvLSTM1D(2, 2), SMALL_IMAGE)],
    "ConvLSTM2D": [recipe(lambda: L.ConvLSTM2D(2, 2), FILM)],
    "ConvLSTM3D": [recipe(lambda: L.ConvLSTM3D(2, 2), VOLUME[:, None])],
}

WRAPPERS: dict[str, list[Recipe]] = {
    "Wrapper": [recipe(lambda: CustomWrapper(L.Dense(3)), VECTOR)],
    "TimeDistributed": [
        recipe(lambda: L.TimeDistributed(L.Dense(3)), SEQUENCE),
        recipe(
            lambda: L.TimeDistributed(keras.Sequential([L.Dense(3), L.BatchNormalization()])),
            SEQUENCE,
            variant="of a model",
            trains=True,
        ),
    ],
    "Bidirectional": [
        recipe(lambda: L.Bidirectional(L.LSTM(3)), SEQUENCE),
        recipe(
            lambda: L.Bidirectional(L.GRU(3), backward_layer=L.LSTM(3, go_backwards=True)),
            SEQUENCE,
            variant="backward_layer",
        ),
        recipe(lambda: L.Bidirectional(L.RNN([L.GRUCell(2), L.GRUCell(3)])), SEQUENCE, variant="stacked cells"),
    ],
}

RECIPES = {**RECURRENT, **CELLS, **CONVOLUTIONAL, **WRAPPERS}
