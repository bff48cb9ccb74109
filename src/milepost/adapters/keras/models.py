"""Sequential and functional models, whose layers are not attributes.

::

    Keras 2   layer_with_weights-<k>, layer-<i>        k counts layers that have weights, i all of them
    Keras 3   Sequential: _functional/_operations/<i+1>    functional: _operations/<i>, operations counted too

A save writes both names, and a restore matches either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from milepost.adapters.keras.hooks import hook
from milepost.adapters.keras.layers import KerasLayerAdapter
from milepost.adapters.keras.private import Functional, Layer, Sequential
from milepost.adapters.layer_names import numbered, outvoted
from milepost.graph.adapter import register


class KerasLayeredModelAdapter(KerasLayerAdapter):
    """Models made of a list or a graph of layers."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, (Sequential, Functional))

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        yield from numbered(obj.layers)
        for name, child in super().children(obj):
            if name != "_layers":
                yield name, child

    def unwanted(self, obj: Any, saved: Collection[str]) -> Collection[str]:
        return outvoted(list(saved), obj.layers, _likely_has_weights)

    def on_deferred(self, obj: Any) -> None:
        super().on_deferred(obj)
        for layer in obj.layers:
            if not layer.built:
                hook(layer, obj)


def _likely_has_weights(layer: Any) -> bool:
    """Whether a layer that is not built will make weights in ``build``. Keras' own layers without weights are built at once."""
    return type(layer).build is not Layer.build or bool(layer._layers) or bool(layer.weights)


register(KerasLayeredModelAdapter())
