"""Every layer, optimizer and metric of tf_keras, which is Keras 2."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras

from benchmarks.libraries.specimen import Parts, Specimen, UntriedError

_NAMESPACES: dict[str, tuple[Any, type]] = {
    "layers": (keras.layers, keras.layers.Layer),
    "optimizers": (keras.optimizers, keras.optimizers.Optimizer),
    "metrics": (keras.metrics, keras.metrics.Metric),
}
_TEXTS = np.array([["tide"], ["mast"], ["tide"], ["sail"]], object)
_WORDS = ["tide", "mast", "sail"]
_L = keras.layers


def _numbers(*shape: int) -> Any:
    return np.sin(np.arange(1, np.prod(shape) + 1) * 12.9898).reshape(shape).astype("float32")


_CELLS: dict[str, Callable[[], Any]] = {
    "RNN": lambda: _L.RNN(_L.LSTMCell(3)),
    "StackedRNNCells": lambda: _L.StackedRNNCells([_L.LSTMCell(3), _L.LSTMCell(3)]),
    "Bidirectional": lambda: _L.Bidirectional(_L.LSTM(3)),
    "TimeDistributed": lambda: _L.TimeDistributed(_L.Dense(3)),
    "Wrapper": lambda: _L.TimeDistributed(_L.Dense(3)),
    "SpectralNormalization": lambda: _L.SpectralNormalization(_L.Dense(3)),
    "LSTM": lambda: _L.LSTM(3, stateful=True, dropout=0.2),
    "GRU": lambda: _L.GRU(3, stateful=True, dropout=0.2),
    "SimpleRNN": lambda: _L.SimpleRNN(3, stateful=True, dropout=0.2),
    "StringLookup": lambda: _L.StringLookup(),
    "TextVectorization": lambda: _L.TextVectorization(output_mode="tf_idf"),
    "IntegerLookup": lambda: _L.IntegerLookup(),
    "Discretization": lambda: _L.Discretization(num_bins=3),
    "Lambda": lambda: _L.Lambda(lambda x: x * 2),
    "EinsumDense": lambda: _L.EinsumDense("ab,bc->ac", output_shape=3),
    "Embedding": lambda: _L.Embedding(9, 3),
    "Permute": lambda: _L.Permute((2, 1)),
    "Reshape": lambda: _L.Reshape((3, 2)),
    "Dot": lambda: _L.Dot(axes=1),
    "MultiHeadAttention": lambda: _L.MultiHeadAttention(2, 3, dropout=0.2),
    "optimizers.LossScaleOptimizer": lambda: keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam()),
    "MeanIoU": lambda: keras.metrics.MeanIoU(2),
    "OneHotIoU": lambda: keras.metrics.OneHotIoU(3, [0, 1]),
    "OneHotMeanIoU": lambda: keras.metrics.OneHotMeanIoU(3),
    "IoU": lambda: keras.metrics.IoU(2, [0]),
    "MeanMetricWrapper": lambda: keras.metrics.MeanMetricWrapper(keras.losses.mse),
    "MeanRelativeError": lambda: keras.metrics.MeanRelativeError(_numbers(4, 3)),
}
_ARGUMENTS: tuple[tuple[Any, ...], ...] = ((), (3,), (3, 3), (0.5,), (6, 6), (((1, 1), (1, 1)),), (4, 4, 3))
_INPUTS: tuple[Callable[[], tuple[Any, ...]], ...] = (
    lambda: (_numbers(4, 6),),
    lambda: (_numbers(2, 6, 4),),
    lambda: (_numbers(2, 12, 12, 3),),
    lambda: (_numbers(2, 6, 6, 6, 3),),
    lambda: (_numbers(2, 3, 12, 12, 3),),
    lambda: (_numbers(2, 3, 12, 3),),
    lambda: (_numbers(2, 2, 8, 8, 8, 3),),
    lambda: ([_numbers(4, 6), _numbers(4, 6) * 2],),
    lambda: ([_numbers(2, 6, 4), _numbers(2, 6, 4) * 2],),
    lambda: (_numbers(2, 6, 4), _numbers(2, 6, 4)),
    lambda: (np.array([[1, 2, 3, 0], [5, 4, 3, 2]], "int64"),),
    lambda: (_TEXTS,),
    lambda: ([_TEXTS, _TEXTS],),
    lambda: (tf.constant(["tide", "mast"]),),
)


def names() -> Iterable[str]:
    """What is public, by its namespace and name."""
    for namespace, (module, base) in _NAMESPACES.items():
        for name, kind in sorted(vars(module).items()):
            if (
                inspect.isclass(kind)
                and issubclass(kind, base)
                and kind is not base
                and not name.startswith("Abstract")
            ):
                yield f"{namespace}.{name}"


def make(name: str, seed: int) -> Specimen:
    """One object."""
    namespace, _, kind = name.partition(".")
    keras.utils.set_random_seed(seed)
    return {"layers": Layer, "optimizers": Optimizer, "metrics": Metric}[namespace](kind, seed)


class Trackable(Parts):
    """Objects that ``tf.train.Checkpoint`` saves."""

    def account(self) -> Any:
        variables = [variable for part in self.parts.values() for variable in _variables(part)]
        tables = [part.get_vocabulary() for part in self.parts.values() if hasattr(part, "get_vocabulary")]
        return {"variables": [np.asarray(variable) for variable in variables], "vocabularies": tables}

    def save(self, path: Path) -> None:
        tf.train.Checkpoint(**self.parts).write(str(path))

    def load(self, path: Path) -> None:
        tf.train.Checkpoint(**self.parts).read(str(path)).assert_consumed()


class Layer(Trackable):
    """A layer."""

    def __init__(self, kind: str, seed: int) -> None:
        self.layer, self.inputs = _fitting(kind, seed)
        self.parts = {"layer": self.layer}

    def use(self, step: int) -> Any:
        keras.utils.set_random_seed(100 + step)
        found = _called(self.layer, self.inputs)
        for variable in self.layer.trainable_variables:
            variable.assign_add(tf.cast(tf.ones_like(variable) * 0.01 * (step + 1), variable.dtype))
        return [_values(each) for each in tf.nest.flatten(found)]


class Optimizer(Trackable):
    """An optimizer, and the model that it trains."""

    def __init__(self, kind: str, seed: int) -> None:
        self.model = keras.Sequential([keras.layers.Dense(3, "tanh"), keras.layers.Dense(2)])
        self.optimizer = _CELLS.get(f"optimizers.{kind}", getattr(keras.optimizers, kind))()
        self.parts = {"model": self.model, "optimizer": self.optimizer}
        if seed > 1:
            self.use(0)

    def use(self, step: int) -> Any:
        keras.utils.set_random_seed(100 + step)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.model(_numbers(4, 6) * (1 + step / 8)) - step))
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss.numpy()


class Metric(Trackable):
    """A metric."""

    _inputs: tuple[Callable[[int], tuple[Any, ...]], ...] = (
        lambda step: (np.array([[0], [1], [1], [0]]), np.abs(_numbers(4, 1)) / (step + 1)),
        lambda step: (np.eye(3, dtype="float32")[[0, 1, 2, 1]], np.abs(_numbers(4, 3)) / (step + 1)),
        lambda step: (np.array([0, 1, 2, 1]), np.abs(_numbers(4, 3)) / (step + 1)),
        lambda step: (_numbers(4, 3) * (step + 1),),
    )

    def __init__(self, kind: str, seed: int) -> None:
        for inputs in self._inputs:
            try:
                self.metric = _made("metrics", kind)
                self.metric.update_state(*inputs(0))
                self.metric.result()
                break
            except Exception as error:
                refused = error
        else:
            raise UntriedError(f"no arguments for it are known: {refused}")
        self.inputs, self.parts = inputs, {"metric": self.metric}

    def use(self, step: int) -> Any:
        self.metric.update_state(*self.inputs(step))
        return [_values(each) for each in tf.nest.flatten(self.metric.result())]


def _fitting(kind: str, seed: int) -> tuple[Any, tuple[Any, ...]]:
    """A layer that was called, and what it was called with."""
    refused: Exception | None = None
    for make in _constructors(kind):
        for inputs in _INPUTS:
            try:
                keras.utils.set_random_seed(seed)
                layer = make()
                if hasattr(layer, "adapt"):
                    layer.adapt(inputs()[0] if seed == 1 else inputs()[0][::-1][:1])
                _called(layer, inputs())
                return layer, inputs()
            except TimeoutError:
                raise
            except Exception as error:
                refused = error
    raise UntriedError(f"no arguments for it are known: {type(refused).__name__}: {refused}")


def _constructors(kind: str) -> Iterator[Callable[[], Any]]:
    if kind in _CELLS:
        yield _CELLS[kind]
        return
    for arguments in _ARGUMENTS:
        yield functools.partial(getattr(keras.layers, kind), *arguments)


def _called(layer: Any, inputs: tuple[Any, ...]) -> Any:
    if "states" in inspect.signature(layer.call).parameters:
        inputs = (inputs[0], layer.get_initial_state(batch_size=len(inputs[0]), dtype="float32"))
        inputs = (inputs[0], [inputs[1]] if tf.is_tensor(inputs[1]) else inputs[1])
    training = {"training": True} if "training" in inspect.signature(layer.call).parameters else {}
    return layer(*inputs, **training)


def _made(namespace: str, kind: str) -> Any:
    refused: Exception | None = None
    for arguments in _ARGUMENTS:
        try:
            return _CELLS[kind]() if kind in _CELLS else getattr(getattr(keras, namespace), kind)(*arguments)
        except Exception as error:
            refused = error
    raise UntriedError(f"no arguments for it are known: {refused}")


def _variables(part: Any) -> list[Any]:
    found = part.variables
    return list(found() if callable(found) else found)


def _values(each: Any) -> Any:
    return np.asarray(
        each.to_dense()
        if hasattr(each, "to_dense")
        else tf.sparse.to_dense(each)
        if isinstance(each, tf.SparseTensor)
        else each
    )
