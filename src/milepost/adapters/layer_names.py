"""Names of the layers of models that are a list or a graph of layers, as Keras 2 has them and milepost writes them.

::

    layer_with_weights-<k>    k counts layers that have weights
    layer-<i>                 i counts all of them
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from milepost.graph.waiting import is_anything_waiting, waiting_on


def numbered(layers: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """The names of layers, each with its layer.

    A layer that is not built may get weights yet, and shift the numbers of those behind it, so these have no names that
    count weights. Where saved values wait for the layers, it is known which have weights.
    """
    awaiting = [_is_awaiting(layer) for layer in layers]
    with_weights = 0
    is_known = True
    for number, layer in enumerate(layers):
        is_known = is_known and (layer.built or any(awaiting))
        if is_known and (awaiting[number] or (layer.built and layer.weights)):
            yield f"layer_with_weights-{with_weights}", layer
            with_weights += 1
        yield f"layer-{number}", layer


def is_awaiting(layers: Sequence[Any]) -> bool:
    """Whether saved values wait for any layer that is not built."""
    return is_anything_waiting() and any(map(_is_awaiting, layers))


def _is_awaiting(layer: Any) -> bool:
    if layer.built or not is_anything_waiting():
        return False
    below = getattr(layer, "_layers", None) or getattr(layer, "_self_tracked_trackables", None) or ()
    return bool(waiting_on(layer)) or any(_is_awaiting(each) for each in below if hasattr(each, "built"))
