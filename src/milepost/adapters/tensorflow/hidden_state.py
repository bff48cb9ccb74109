"""State of Keras 2's layers that TensorFlow does not track: vocabularies, boundaries, states of recurrent layers, generators.

milepost saves it in a field of the object graph that TensorFlow skips, so that TensorFlow's assertions do not miss it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf

from milepost.adapters.attributes import watch_attributes
from milepost.adapters.tensorflow.hooks import hook
from milepost.adapters.tensorflow.kinds import is_keras_2
from milepost.adapters.tensorflow.layers import TensorFlowLayerAdapter
from milepost.adapters.tensorflow.trackables import TrackableAdapter
from milepost.graph.adapter import Array, Value
from milepost.graph.omissions import Omission
from milepost.graph.variable import as_array
from milepost.tensor import DType

_INT64: Final = DType.of("int64")
_FLOAT64: Final = DType.of("float64")
_STATES: Final = "states-"
_LEGACY: Final = "legacy_stateful"
_LEGACY_GENERATOR: Final = Omission(
    "its random numbers come from operations whose state TensorFlow does not expose, so a resumed run draws different numbers",
    "call keras.backend.experimental.enable_tf_random_generator() before the layer is made",
    doubtful=True,
)


class RecurrentAdapter(TensorFlowLayerAdapter):
    """Recurrent layers. If they are ``stateful``, they keep their states from one batch to the next."""

    def handles(self, kind: type) -> bool:
        return super().handles(kind) and is_keras_2(kind, "RNN")

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        return [*super().children(obj), *_states(obj)]

    def skipped_by_tensorflow(self, obj: Any) -> Collection[str]:
        return [*super().skipped_by_tensorflow(obj), *(name for name, _ in _states(obj))]

    def on_deferred(self, obj: Any) -> None:
        hook(obj)
        watch_attributes(obj, ("_states",))


class TensorFlowVocabularyAdapter(TensorFlowLayerAdapter):
    """``StringLookup`` and ``IntegerLookup``, also inside ``TextVectorization``."""

    def handles(self, kind: type) -> bool:
        return super().handles(kind) and is_keras_2(kind, "IndexLookup")

    def values(self, obj: Any) -> Sequence[Value]:
        dtype = DType.of("string" if obj.vocabulary_dtype == "string" else "int64")
        return (Value("vocabulary", dtype, (None,), lambda: _vocabulary(obj, dtype), skipped_by_tensorflow=True),)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        words = arrays["vocabulary"].tolist()
        if words:
            tokens = [word.decode() if isinstance(word, bytes) else word for word in words]
            with tf.init_scope():
                # The weights of words are a variable, and so a child with a value of its own.
                obj.set_vocabulary(tokens, False if obj.output_mode == "tf_idf" else None)
        return obj

    def on_restored(self, obj: Any) -> None:
        if obj.output_mode == "tf_idf":
            with tf.init_scope():
                obj.idf_weights_const = obj.idf_weights.value()


class TensorFlowDiscretizationAdapter(TensorFlowLayerAdapter):
    """``Discretization``."""

    def handles(self, kind: type) -> bool:
        return super().handles(kind) and is_keras_2(kind, "Discretization")

    def values(self, obj: Any) -> Sequence[Value]:
        def source() -> Array:
            return np.array([float(each) for each in obj.bin_boundaries or ()], np.float64)

        return (Value("bin_boundaries", _FLOAT64, (None,), source, skipped_by_tensorflow=True),)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        boundaries = arrays["bin_boundaries"].tolist()
        if boundaries:
            obj.bin_boundaries = boundaries
        return obj


class LayerGeneratorAdapter(TrackableAdapter):
    """The generators of layers that draw random numbers, such as ``Dropout``."""

    def handles(self, kind: type) -> bool:
        return super().handles(kind) and is_keras_2(kind, "RandomGenerator")

    def tracks(self, obj: Any) -> bool:
        return obj._rng_type != _LEGACY or _seed(obj) is not None

    def omission(self, obj: Any) -> Omission | None:
        return None if self.tracks(obj) else _LEGACY_GENERATOR

    def values(self, obj: Any) -> Sequence[Value]:
        seed = _seed(obj)
        return (
            () if seed is None else (Value("seed", _INT64, (), np.array(seed, np.int64), skipped_by_tensorflow=True),)
        )

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        obj._seed = int(arrays["seed"])
        return obj


def _states(obj: Any) -> list[tuple[str, Any]]:
    states = tf.nest.flatten(vars(obj).get("_states"))
    return [(f"{_STATES}{number}", each) for number, each in enumerate(states) if isinstance(each, tf.Variable)]


def _vocabulary(obj: Any, dtype: DType) -> Array:
    with tf.init_scope():
        words = obj.get_vocabulary()
        if len(words) <= obj._token_start_index():
            words = []
    if dtype.is_bytes:
        return as_array(np.array([str(word) for word in words], object))
    return np.array(words, np.int64)


def _seed(obj: Any) -> int | None:
    seed = obj._seed
    return int(seed) if isinstance(seed, (int, np.integer)) and -(2**63) <= seed < 2**63 else None
