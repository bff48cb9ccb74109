"""Preprocessing layers that hold a vocabulary or boundaries, and no variables; and `FeatureSpace`, which holds such layers.

TensorFlow does not save these, so the object graph has them in a field that TensorFlow skips.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from milepost.adapters.keras.layers import KerasLayerAdapter
from milepost.adapters.keras.private import Discretization, FeatureSpace, IndexLookup, Normalization
from milepost.deferred.table import deferred_on
from milepost.graph.adapter import Array, Value, register
from milepost.graph.variable import as_array
from milepost.tensor import DType


class KerasVocabularyAdapter(KerasLayerAdapter):
    """`keras.layers.StringLookup` and `IntegerLookup`, also inside `TextVectorization`."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, IndexLookup)

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        # Setting a vocabulary makes a new variable for the weights, so they are saved as a value of their own.
        return [pair for pair in super().children(obj) if pair[0] != "idf_weights"]

    def values(self, obj: Any) -> Sequence[Value]:
        dtype = DType.of("string" if obj.vocabulary_dtype == "string" else "int64")
        vocabulary = Value("vocabulary", dtype, (None,), lambda: _vocabulary(obj, dtype), skipped_by_tensorflow=True)
        if obj.output_mode != "tf_idf":
            return (*super().values(obj), vocabulary)
        weights = Value("idf_weights", DType.of("float32"), (None,), lambda: _weights(obj), skipped_by_tensorflow=True)
        return (*super().values(obj), vocabulary, weights)

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        words = arrays["vocabulary"].tolist()
        if words:
            tokens = [word.decode() if isinstance(word, bytes) else word for word in words]
            weights = arrays.get("idf_weights")
            obj.set_vocabulary(tokens, weights[: len(tokens)] if weights is not None else None)
            if weights is not None:
                obj.load_own_variables({"idf_weights": weights})
        return super().assign(obj, arrays)


class KerasDiscretizationAdapter(KerasLayerAdapter):
    """`keras.layers.Discretization`."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, Discretization)

    def values(self, obj: Any) -> Sequence[Value]:
        def source() -> Array:
            return np.array(obj.bin_boundaries or [], np.float64)

        return (
            *super().values(obj),
            Value("bin_boundaries", DType.of("float64"), (None,), source, skipped_by_tensorflow=True),
        )

    def assign(self, obj: Any, arrays: Mapping[str, Array]) -> Any:
        boundaries = arrays["bin_boundaries"].tolist()
        if boundaries:
            obj.bin_boundaries = boundaries
        return super().assign(obj, arrays)


class FeatureSpaceAdapter(KerasLayerAdapter):
    """`keras.utils.FeatureSpace`. It refuses to be used until it counts as adapted, which no variable of it says."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, FeatureSpace)

    def on_restored(self, obj: Any) -> None:
        super().on_restored(obj)
        if not obj._is_adapted:
            obj._is_adapted = all(_is_adapted(each) for each in obj.preprocessors.values() if hasattr(each, "adapt"))


def _is_adapted(layer: Any) -> bool:
    """Whether a layer that learns from data has done so, or gets what another one has learned when it is built."""
    lookup = getattr(layer, "_lookup_layer", layer)
    if isinstance(lookup, IndexLookup):
        return bool(len(lookup.get_vocabulary()) > lookup._token_start_index())
    if isinstance(layer, Discretization):
        return layer.bin_boundaries is not None
    has_statistics = isinstance(layer, Normalization) and layer.input_mean is not None
    return bool(has_statistics or layer.built or deferred_on(layer))


def _vocabulary(obj: Any, dtype: DType) -> Array:
    special = obj._token_start_index()
    words = obj.get_vocabulary()
    if len(words) <= special:
        words = []
    if dtype.is_bytes:
        return as_array(np.array([str(word) for word in words], object))
    return np.array(words, np.int64)


def _weights(obj: Any) -> Array:
    weights = getattr(obj, "idf_weights_const", None)
    return np.asarray(weights, np.float32) if weights is not None else np.zeros(0, np.float32)


register(KerasVocabularyAdapter())
register(KerasDiscretizationAdapter())
register(FeatureSpaceAdapter())
