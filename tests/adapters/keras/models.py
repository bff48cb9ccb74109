"""Models of every kind, each as a function that builds a fresh one, unbuilt wherever Keras allows it."""

from typing import Any

import numpy as np
import pytest

keras: Any = pytest.importorskip("keras", minversion="3", reason="Keras 3 is not installed")

INPUTS = np.linspace(-1, 1, 24, dtype="float32").reshape(6, 4)
TARGETS = np.linspace(0, 1, 12, dtype="float32").reshape(6, 2)
L: Any = keras.layers


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.l1 = L.Dense(3, activation="tanh")
        self.l2 = L.Dense(2)

    def call(self, x):
        return self.l2(self.l1(x))


class Nested(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = Subclassed()
        self.head = L.Dense(2)

    def call(self, x):
        return self.head(self.inner(x))


class Lists(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [L.Dense(3), [L.Dense(3), L.LayerNormalization()]]
        self.pair = (L.Dense(3), L.Dense(2))

    def call(self, x):
        x = self.blocks[0](x)
        for block in self.blocks[1]:
            x = block(x)
        return self.pair[1](self.pair[0](x))


class Dicts(keras.Model):
    def __init__(self):
        super().__init__()
        self.parts = {"first": L.Dense(3), "more": {"second": L.Dense(2)}}

    def call(self, x):
        return self.parts["more"]["second"](self.parts["first"](x))


class MadeInBuild(L.Layer):
    def build(self, shape):
        self.dense = L.Dense(3)
        self.dense.build(shape)
        self.scale = self.add_weight(shape=(3,), initializer="random_normal", name="scale")
        self.rest = [L.Dense(2)]
        self.rest[0].build((*shape[:-1], 3))

    def call(self, x):
        return self.rest[0](self.dense(x) * self.scale)


class MadeInCall(keras.Model):
    def __init__(self):
        super().__init__()
        self.first = L.Dense(3)
        self.dense = None

    def call(self, x):
        if self.dense is None:
            self.dense = L.Dense(2)
        return self.dense(self.first(x))


class AppendedInBuild(keras.Model):
    def __init__(self):
        super().__init__()
        self.blocks = [L.Dense(3)]

    def build(self, shape):
        self.blocks[0].build(shape)
        self.blocks.append(L.Dense(2))
        self.blocks[1].build((*shape[:-1], 3))

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class RawVariables(keras.Model):
    def __init__(self):
        super().__init__()
        self.w = keras.Variable(keras.random.normal((4, 2)), name="w")
        self.listed = [keras.Variable(keras.random.normal((2,)), name="b")]

    def call(self, x):
        return keras.ops.matmul(x, self.w) + self.listed[0]


class Conditional(keras.Model):
    """Depends on values, so that Keras cannot trace it."""

    def __init__(self):
        super().__init__()
        self.l1 = L.Dense(3)
        self.l2 = L.Dense(2)

    def call(self, x):
        if float(keras.ops.convert_to_numpy(keras.ops.sum(x))) > 1e9:
            return x
        return self.l2(self.l1(x))


def sequential():
    return keras.Sequential([L.Dense(3), L.Dense(3), L.BatchNormalization(), L.Dense(2)])


def sequential_with_input():
    return keras.Sequential([keras.Input((4,)), L.Dense(3), L.Dense(3), L.Dense(2)])


def sequential_with_built_part():
    return keras.Sequential([L.Dense(3), keras.Sequential([keras.Input((3,)), L.Dense(3)]), L.Dense(2)])


def functional():
    inputs = keras.Input((4,))
    left, right = L.Dense(3)(inputs), L.Dense(3, activation="tanh")(inputs)
    return keras.Model(inputs, L.Dense(2)(keras.ops.add(left, right) * 2))


def sequential_of_subclassed():
    return keras.Sequential([Subclassed(), L.Dense(2)])


def recurrent():
    return keras.Sequential(
        [
            L.Reshape((2, 2)),
            L.Bidirectional(L.LSTM(3, return_sequences=True)),
            L.RNN([L.GRUCell(2), L.LSTMCell(2)]),
        ]
    )


def attention():
    class Attention(keras.Model):
        def __init__(self):
            super().__init__()
            self.shape = L.Reshape((2, 2))
            self.attention = L.MultiHeadAttention(2, 3)
            self.flat = L.Flatten()
            self.head = L.Dense(2)

        def call(self, x):
            x = self.shape(x)
            return self.head(self.flat(self.attention(x, x)))

    return Attention()


MODELS = {
    "subclassed": Subclassed,
    "nested": Nested,
    "lists": Lists,
    "dicts": Dicts,
    "made_in_build": lambda: keras.Sequential([MadeInBuild()]),
    "made_in_call": MadeInCall,
    "appended_in_build": AppendedInBuild,
    "raw_variables": RawVariables,
    "sequential": sequential,
    "sequential_with_input": sequential_with_input,
    "sequential_with_built_part": sequential_with_built_part,
    "functional": functional,
    "sequential_of_subclassed": sequential_of_subclassed,
    "recurrent": recurrent,
    "attention": attention,
}
