"""Names of the layers of models that are a list or a graph of layers, as Keras 2 has them and milepost writes them.

::

    layer_with_weights-<k>    k counts layers that have weights
    layer-<i>                 i counts all of them; written directly after the other name of the same layer, if it has one

A layer with both names is restored by the first alone, so that layers without weights may come and go. TensorFlow goes by the
second as long as a model is not built, and gives each layer behind a new one its neighbour's weights.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

_WITH_WEIGHTS: Final = "layer_with_weights-"
_AMONG_ALL: Final = "layer-"
_known: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
"""Layers that have got weights in the middle of being built, and do not say so yet."""


def numbered(layers: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """The names of layers, each with its layer.

    A layer that is not built may get weights yet, and shift the numbers of those behind it, so these have no names that
    count weights.
    """
    with_weights = 0
    is_known = True
    for number, layer in enumerate(layers):
        has_weights = _has_weights(layer)
        is_known = is_known and (layer.built or has_weights)
        if is_known and has_weights:
            yield f"{_WITH_WEIGHTS}{with_weights}", layer
            with_weights += 1
        yield f"{_AMONG_ALL}{number}", layer


def outvoted(names: Sequence[str], layers: Sequence[Any], likely: Callable[[Any], bool] | None = None) -> set[str]:
    """Of saved edges, those that are a layer's number among all layers, where its number among those with weights counts.

    A model that was saved while values waited for its layers has these under their numbers among layers with weights, apart
    from the layers, and what layers with weights held then is not to be restored.

    Args:
        names: The saved edges in their order.
        layers: The live layers.
        likely: Tells of a layer that is not built whether it will have weights. If the layers are as many as were saved, and
            those with weights stand where they stood, both numbers mean the same, and nothing has to wait.

    Example:
        >>> sorted(outvoted(["layer_with_weights-0", "layer-0", "layer-1", "layer_with_weights-1", "layer-2"], []))
        ['layer-0', 'layer-2']
    """
    pairs = [(name, after) for name, after in pairwise([*names, ""]) if name.startswith(_WITH_WEIGHTS)]
    found = {after for _, after in pairs if after.startswith(_AMONG_ALL)}
    if (
        likely is not None
        and len(found) == len(pairs)
        and sum(name.startswith(_AMONG_ALL) for name in names) == len(layers)
    ):
        expected = [layer.weights if layer.built else likely(layer) for layer in layers]
        if found == {f"{_AMONG_ALL}{number}" for number, has_weights in enumerate(expected) if has_weights}:
            return set()
    if len(found) < len(pairs):
        found |= {
            f"{_AMONG_ALL}{number}" for number, layer in enumerate(layers) if not layer.built or _has_weights(layer)
        }
    return found


def has_weights_now(layer: Any) -> None:
    """Notes that a layer which is being built has got a weight."""
    _known.add(layer)


def is_layer_name(name: str) -> bool:
    """Whether an edge is a layer's number."""
    return name.startswith((_WITH_WEIGHTS, _AMONG_ALL))


def are_built(layers: Iterable[Any]) -> bool:
    """Whether it is known of each layer whether it has weights."""
    return all(layer.built for layer in layers)


def _has_weights(layer: Any) -> bool:
    try:
        return layer in _known or bool(layer.weights)
    except ValueError:  # models of Keras 2 that are not built
        return False
