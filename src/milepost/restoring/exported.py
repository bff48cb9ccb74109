"""Checkpoints of Keras 3's ``model.export()``: the variables of a model as flat lists, without the names of layers.

::

    root                          variables, trainable_variables, non_trainable_variables, _all_variables, _misc_assets
    trainable_variables           0, 1, ...: in the order of ``model.trainable_variables``
    non_trainable_variables       likewise
    variables                     the same variables; on TensorFlow in the order of ``model.variables``, on JAX one list after
                                  the other

The lists fit a live model whose lists have as many members with the same names. Source: Keras 3.15,
``export/saved_model_export_archive.py`` and ``backend/*/export.py``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from milepost.graph.saved.object_graph import Node, ObjectGraph

_MARKS: Final = frozenset({"variables", "_misc_assets"})
_LISTS: Final = ("trainable_variables", "non_trainable_variables")
REMEDY: Final = (
    "Keras 3's export() saves the variables of a model as flat lists: give the live model the same layers, with the same "
    "`trainable` settings, as the exported one, build it, for example by calling it once, and pass it alone, as in "
    "milepost.Checkpoint(model).read(path)"
)


def is_exported(graph: ObjectGraph) -> bool:
    """Whether Keras 3's ``export()`` has written this graph."""
    return {edge.name for edge in graph.nodes[0].children} >= _MARKS.union(_LISTS)


def exported_lists(graph: ObjectGraph, model: Any) -> list[tuple[str, Any]]:
    """The live variables in the order in which they were exported, by the names of the lists.

    Args:
        graph: An exported graph.
        model: The live root.

    Returns:
        More edges for the root. An empty list if the live variables are not the exported ones.
    """
    nodes = graph.nodes
    edges = {edge.name: edge.node for edge in nodes[0].children}
    lists: list[tuple[str, Any]] = []
    of_node: dict[int, Any] = {}
    for name in _LISTS:
        saved, live = _members(nodes[edges[name]]), _variables(model, name)
        if live is None or len(saved) != len(live):
            return []
        for number, variable in zip(saved, live, strict=True):
            if not _is_same_name(nodes[number], variable):
                return []
            of_node[number] = variable
        lists.append((name, live))
    every = _members(nodes[edges["variables"]])
    if all(number in of_node for number in every):
        lists.append(("variables", [of_node[number] for number in every]))
    return lists


def _members(node: Node) -> list[int]:
    numbered = [(int(edge.name), edge.node) for edge in node.children if edge.name.isdecimal()]
    return [number for _, number in sorted(numbered)]


def _variables(model: Any, name: str) -> Sequence[Any] | None:
    try:
        return list(getattr(model, name))
    except Exception:  # a model that is not built may raise an error
        return None


def _is_same_name(node: Node, variable: Any) -> bool:
    """Whether a saved and a live variable have the same name, without the names of layers and the numbers at the end."""
    names = [value.full_name for value in node.values]
    return len(names) == 1 and _last(names[0]) == _last(getattr(variable, "name", ""))


def _last(name: str) -> str:
    return re.sub(r"(_\d+)?(:\d+)?$", "", name.rpartition("/")[2])
