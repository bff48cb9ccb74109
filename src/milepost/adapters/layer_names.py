"""Names of the layers of Sequential and functional models, as Keras 2 and milepost write them.

::

    layer_with_weights-<k>    k counts layers that have weights
    layer-<i>                 i counts all layers; written directly after the other name of the same layer, if it has one

A layer with both names is matched by the first, so that layers without weights can be added and removed. TensorFlow matches by the
second while a model is not built, so each layer after an added one gets its neighbour's weights there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from milepost.facts import Fact

_WITH_WEIGHTS: Final = "layer_with_weights-"
_AMONG_ALL: Final = "layer-"
_has_made: Final[Fact[bool]] = Fact()
"""Layers that have made weights while they are being built, and do not list them yet."""


def numbered(layers: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """The names of layers, each with its layer.

    A layer that is not built may still make weights, which would shift the numbers of the layers after it. So these layers have no
    names that count weights.
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
    """The saved edges ``layer-<i>`` that a restore must not follow, because the layer is matched by ``layer_with_weights-<k>``.

    A model that was saved while values were deferred for its layers has these values under ``layer_with_weights-<k>``, apart from
    the layers. The values that its layers with weights had at that time are not restored.

    Args:
        names: The saved edges in their order.
        layers: The live layers.
        likely: Returns whether a layer that is not built will have weights. If there are as many layers as were saved, and those
            with weights are at the same positions, then both names mean the same layer, and every edge is followed.

    Example:
        >>> sorted(outvoted(["layer_with_weights-0", "layer-0", "layer-1", "layer_with_weights-1", "layer-2"], []))
        ['layer-0', 'layer-2']
    """
    pairs = [(name, after) for name, after in pairwise([*names, ""]) if name.startswith(_WITH_WEIGHTS)]
    edges = {after for _, after in pairs if after.startswith(_AMONG_ALL)}
    if (
        likely is not None
        and len(edges) == len(pairs)
        and sum(name.startswith(_AMONG_ALL) for name in names) == len(layers)
    ):
        expected = [layer.weights if layer.built else likely(layer) for layer in layers]
        if edges == {f"{_AMONG_ALL}{number}" for number, has_weights in enumerate(expected) if has_weights}:
            return set()
    if len(edges) < len(pairs):
        edges |= {
            f"{_AMONG_ALL}{number}" for number, layer in enumerate(layers) if not layer.built or _has_weights(layer)
        }
    return edges


def has_weights_now(layer: Any) -> None:
    """Notes that a layer that is being built has made a weight."""
    _has_made[layer] = True


def is_layer_name(name: str) -> bool:
    """Whether an edge is named by a layer's number."""
    return name.startswith((_WITH_WEIGHTS, _AMONG_ALL))


def are_built(layers: Iterable[Any]) -> bool:
    """Whether all layers are built, so that it is known which of them have weights."""
    return all(layer.built for layer in layers)


def _has_weights(layer: Any) -> bool:
    try:
        return layer in _has_made or bool(layer.weights)
    except ValueError:  # models of Keras 2 that are not built
        return False
