"""The names that layers and variables have themselves, where the names that lead to them do not say as much.

Keras gives each layer and variable a name. Its files call a layer after its class, such as ``dense_1``, and keep the layer's own name, such as
``head``, as an attribute; an object graph keeps the own name of a variable.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

from milepost.bundle import BundleReader
from milepost.foreign import ForeignReader
from milepost.graph.description import shortened
from milepost.graph.saved.object_graph import Node

_UNNAMED: Final = re.compile(r"(Variable|variable)(_\d+)?(:0)?")
"""What TensorFlow and Keras call a variable that the program does not name."""
_LONGEST: Final = 100


def own_name_of(node: Node, path: Collection[str]) -> str:
    """The own name of a variable in an object graph. Empty if it has none, or if the path says as much.

    Args:
        node: The node of the variable.
        path: The names that lead to it, or the last ones.
    """
    return _telling(node.values[0].full_name, path) if len(node.values) == 1 else ""


def own_names_of(reader: BundleReader) -> dict[str, str]:
    """The own names of layers in a file of Keras, by path, where the path does not say as much. Empty for other files."""
    if not isinstance(reader, ForeignReader) or reader.keras is None:
        return {}
    names = {path: _telling(name, path.split("/")) for path, name in reader.keras.own_names().items()}
    return {path: name for path, name in names.items() if name}


def layer_of(steps: Sequence[str], own_names: dict[str, str]) -> str:
    """The own names of all layers that a path leads through, the outermost first.

    Args:
        steps: The names of the path.
        own_names: The own names by path.

    Example:
        >>> layer_of(["layers", "bidirectional", "forward_layer", "vars", "0"], {"layers/bidirectional": "encoder"})
        'encoder'
    """
    paths = ("/".join(steps[:count]) for count in range(1, len(steps)))
    return "/".join(own_names[path] for path in paths if path in own_names)


def _telling(name: str, path: Collection[str]) -> str:
    if not name or _UNNAMED.fullmatch(name) or {*name.split("/")} <= {*path}:
        return ""
    return shortened(name, _LONGEST)
