"""Layers of Keras 2, which read what Keras 3 has saved under other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tensorflow as tf

from milepost.adapters.tensorflow.kinds import is_keras_2
from milepost.adapters.tensorflow.trackables import TrackableAdapter
from milepost.graph.adapter import register

_KERAS_3_NAMES: Final = {"_kernel": "kernel", "_embeddings": "embeddings"}
_DEPTHWISE: Final = {"kernel": "depthwise_kernel", "_kernel": "depthwise_kernel"}


class LayerAdapter(TrackableAdapter):
    """Layers and models."""

    def handles(self, kind: type) -> bool:
        return super().handles(kind) and is_keras_2(kind, "Layer")

    def aliases(self, obj: Any) -> Mapping[str, str]:
        return _KERAS_3_NAMES


class DepthwiseAdapter(LayerAdapter):
    """Layers with one kernel for each channel."""

    def handles(self, kind: type) -> bool:
        return super().handles(kind) and is_keras_2(kind, "DepthwiseConv")

    def aliases(self, obj: Any) -> Mapping[str, str]:
        return _DEPTHWISE


class NormalizationAdapter(LayerAdapter):
    """``Normalization``, which computes constants from its variables."""

    def handles(self, kind: type) -> bool:
        return super().handles(kind) and is_keras_2(kind, "Normalization")

    def settled(self, obj: Any) -> None:
        if obj.built and obj.input_mean is None:
            with tf.init_scope():
                obj.finalize_state()


for _adapter in (LayerAdapter(), DepthwiseAdapter(), NormalizationAdapter()):
    register(_adapter)
