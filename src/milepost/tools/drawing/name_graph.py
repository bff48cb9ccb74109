"""The names in a file that has no object graph, as a graph to draw: a node for each level of the names, and one for each tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from milepost.collector import collection_paused
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph, SavedValue
from milepost.tools.tree import Branch, in_order, tree_of
from milepost.tools.values.tensors import Row


class NameGraph(NamedTuple):
    """The names of a file.

    Attributes:
        graph: The graph. Its first node is the whole file.
        own_names: What layers are called themselves, by the numbers of their nodes.
    """

    graph: ObjectGraph
    own_names: dict[int, str]


@collection_paused()
def graph_of_names(rows: Sequence[Row], own_names: Mapping[str, str]) -> NameGraph:
    """Makes the graph of the names of some tensors.

    Args:
        rows: The tensors.
        own_names: What layers are called themselves, by path.
    """
    order: dict[str, Any] = {}
    branches: list[tuple[Branch, str]] = [(tree_of(rows), "")]
    children: list[list[Edge]] = []
    for branch, path in branches:  # the list grows while it is read
        edges = []
        for name, below in in_order(branch, order):
            edges.append(Edge(name, len(branches)))
            branches.append((below, f"{path}{name}/" if own_names else ""))
        children.append(edges)
    nodes = [
        Node(tuple(edges), () if branch.row is None else (SavedValue(VARIABLE_VALUE, "", branch.row.key),))
        for (branch, _), edges in zip(branches, children, strict=True)
    ]
    named = {number: own_names.get(path[:-1], "") for number, (_, path) in enumerate(branches)} if own_names else {}
    return NameGraph(ObjectGraph(tuple(nodes)), {number: name for number, name in named.items() if name})
