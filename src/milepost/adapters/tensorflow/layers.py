"""Layers of Keras 2. They are matched with the names of Keras 3 too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import tensorflow as tf

from milepost.adapters.layer_names import are_built, is_layer_name, numbered, outvoted
from milepost.adapters.tensorflow.hooks import hook_until_built
from milepost.adapters.tensorflow.kinds import is_keras_2
from milepost.adapters.tensorflow.trackables import TrackableAdapter
from milepost.graph.omissions import Accounted

_KERAS_3_NAMES: Final = {"_kernel": "kernel", "_embeddings": "embeddings"}
_REMEDY: Final = "hold it in an attribute, or in a list or dict in an attribute"
_GENERATOR: Final = "_random_generator"
_DEPTHWISE: Final = {"kernel": "depthwise_kernel", "_kernel": "depthwise_kernel"}


class TensorFlowLayerAdapter(TrackableAdapter):
    """Layers and models."""

    def handles(self, kind: type) -> bool:
        return super().handles(kind) and is_keras_2(kind, "Layer")

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        children = super().children(obj)
        return [*children, (_GENERATOR, vars(obj)[_GENERATOR])] if _draws(obj) else children

    def skipped_by_tensorflow(self, obj: Any) -> Collection[str]:
        return [*super().skipped_by_tensorflow(obj), _GENERATOR]

    def account(self, obj: Any) -> Iterable[Accounted]:
        return account_of_variables(obj, "weights")

    def frozen(self, obj: Any) -> Collection[Any]:
        return () if obj.trainable else obj._trainable_weights

    def aliases(self, obj: Any) -> Mapping[str, str]:
        return _KERAS_3_NAMES


class TensorFlowLayeredModelAdapter(TensorFlowLayerAdapter):
    """Sequential and functional models. Which layers have weights is known only when these are built."""

    def handles(self, kind: type) -> bool:
        return super().handles(kind) and is_keras_2(kind, "Functional")

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        children = super().children(obj)
        if are_built(obj.layers):
            return children
        named = dict(numbered(obj.layers))
        # TensorFlow counts a layer that is not built as one without weights.
        return [*named.items(), *(pair for pair in children if not is_layer_name(pair[0]))]

    def unwanted(self, obj: Any, saved: Collection[str]) -> Collection[str]:
        return [*super().unwanted(obj, saved), *outvoted(list(saved), obj.layers)]

    def on_deferred(self, obj: Any) -> None:
        super().on_deferred(obj)
        for layer in obj.layers:
            hook_until_built(layer, obj)


class DepthwiseAdapter(TensorFlowLayerAdapter):
    """Layers with one kernel for each channel."""

    def handles(self, kind: type) -> bool:
        return super().handles(kind) and is_keras_2(kind, "DepthwiseConv")

    def aliases(self, obj: Any) -> Mapping[str, str]:
        return _DEPTHWISE


class TensorFlowNormalizationAdapter(TensorFlowLayerAdapter):
    """``Normalization``, which computes constants from its variables."""

    def handles(self, kind: type) -> bool:
        return super().handles(kind) and is_keras_2(kind, "Normalization")

    def on_restored(self, obj: Any) -> None:
        if obj.built and obj.input_mean is None:
            with tf.init_scope():
                obj.finalize_state()


def account_of_variables(obj: Any, attribute: str) -> list[Accounted]:
    """The variables in a list of an object of Keras 2, wherever the object holds them.

    Args:
        obj: The object.
        attribute: The name of the list: ``weights`` or ``_variables``.
    """
    try:
        variables = list(getattr(obj, attribute, ()))
    except Exception:  # a model that is not built may raise any error
        if getattr(obj, "built", True):
            raise
        return []
    # The parts of a sharded variable are saved as one. The list of a layer with a vocabulary has a member that is not a variable.
    return [
        Accounted((variable.name,), variable, remedy=_REMEDY, anywhere=True)
        for variable in variables
        if isinstance(variable, tf.Variable) and not hasattr(variable, "_sharded_container")
    ]


def _draws(obj: Any) -> bool:
    """Whether a layer draws from its random generator. Recurrent layers without dropout have one and do not."""
    rates = [getattr(obj, name) for name in ("rate", "dropout", "recurrent_dropout") if hasattr(obj, name)]
    return _GENERATOR in vars(obj) and (not rates or any(not isinstance(rate, (int, float)) or rate for rate in rates))
