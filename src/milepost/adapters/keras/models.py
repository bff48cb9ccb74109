"""Sequential and functional models, whose layers have no attributes of their own.

::

    Keras 2   layer_with_weights-<k>, layer-<i>        k counts layers that have weights, i all of them
    Keras 3   Sequential: _functional/_operations/<i+1>    functional: _operations/<i>, operations counted too

Both are written, and either is matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from milepost.adapters.keras.layers import LayerAdapter
from milepost.adapters.keras.private import Functional, Sequential
from milepost.graph.adapter import register


class LayeredModelAdapter(LayerAdapter):
    """Models made of a list or a graph of layers."""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, (Sequential, Functional))

    def children(self, obj: Any) -> Iterable[tuple[str, Any]]:
        yield from _numbered(obj.layers)
        for name, child in super().children(obj):
            if name != "_layers":
                yield name, child


def _numbered(layers: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    with_weights = 0
    all_built = True  # up to here: a layer that is not may get weights yet, and shift the numbers of those behind it
    for number, layer in enumerate(layers):
        all_built = all_built and layer.built
        if all_built and layer.weights:
            yield f"layer_with_weights-{with_weights}", layer
            with_weights += 1
        yield f"layer-{number}", layer


register(LayeredModelAdapter())
