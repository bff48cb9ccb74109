"""The objects of a graph as a tree: each below the one from which it is reached first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from milepost.graph.saved.object_graph import Node, ObjectGraph
from milepost.tools.drawing.keras_slots import ITERATIONS, keras_slots

_MOST_STEPS: Final = 100
"""Edges that are followed upwards from a node."""
_OF_KERAS: Final = ({ITERATIONS}, {"iter", "decay"})
"""Children that only optimizers have: those of Keras 3 and tf_keras, and those of tf_keras' legacy classes."""


def is_optimizer(node: Node) -> bool:
    """Whether a node is an optimizer: it has slot variables, or the children that optimizers of Keras have, also without any."""
    names = {edge.name for edge in node.children}
    return bool(node.slots) or any(map(names.issuperset, _OF_KERAS))


def listed_slots(graph: ObjectGraph) -> set[int]:
    """The slot variables that the graph lists."""
    return {reference.slot for node in graph.nodes for reference in node.slots}


class ObjectTree:
    """The nodes that a picture may show, each below the node it was reached from. A slot variable that no edge leads to is below its
    variable.

    Attributes:
        every: All nodes, parents before their children.
        order: Those that a picture may show, in the same order.
        distances: How many edges each is away from the first one.
        parents: The node above each.
        names: The name of the edge from there.
        below: The nodes below each.
        slots: All slot variables of the graph.
        in_lists: Those of Keras, which edges lead to, as slot variable, variable and name.
        referred: For each slot variable below its variable, the optimizers' references to it.
        owners: The optimizer that has each slot variable.
        gathered: The slot variables in lists of Keras' optimizers that are below their variables.

    Args:
        graph: The graph.
        start: The first node.
        sizes: The bytes of each saved tensor, by key.
        gather: Whether slot variables of Keras are below their variables, too, and not in lists, and what an optimizer and another object hold is
            below the other object.
    """

    def __init__(self, graph: ObjectGraph, start: int, sizes: Mapping[str, int], *, gather: bool = False) -> None:
        self.distances, self.parents, self.names = {start: 0}, {start: start}, {start: ""}
        in_lists = keras_slots(graph)
        self.slots = listed_slots(graph) | {each.slot for each in in_lists}
        queue, late = deque([start]), deque[int]()
        while queue or late:
            node = queue.popleft() if queue else late.popleft()
            for edge in graph.nodes[node].children:
                if edge.node not in self.distances:
                    self.distances[edge.node] = self.distances[node] + 1
                    self.parents[edge.node] = node
                    self.names[edge.node] = edge.name
                    (late if gather and is_optimizer(graph.nodes[edge.node]) else queue).append(edge.node)
        reached = set(self.distances)
        self.referred: list[tuple[int, int, str, int]] = []
        for owner in list(self.distances):
            for reference in graph.nodes[owner].slots:
                if reference.variable in reached and reference.slot not in reached:
                    self.referred.append((owner, reference.variable, reference.name, reference.slot))
                    self.distances.setdefault(reference.slot, self.distances[reference.variable] + 1)
                    self.parents.setdefault(reference.slot, reference.variable)
                    self.names.setdefault(reference.slot, reference.name)
        self.in_lists = [each for each in in_lists if {each.slot, each.variable} <= reached]
        self.owners = {slot: owner for owner, _, _, slot in self.referred}
        self.owners |= {each.slot: self.parents[self.parents[each.slot]] for each in self.in_lists}
        self.gathered = self._gather() if gather else set()
        self.added = {slot for *_, slot in self.referred}
        self.every = sorted(self.distances, key=self.distances.__getitem__)
        self.order = list(self.every)
        self.below: dict[int, list[int]] = {node: [] for node in self.order}
        for node in self.order:
            if node != start:
                self.below[self.parents[node]].append(node)
        self._counts = dict.fromkeys(self.order, 1)
        self._sizes = dict.fromkeys(self.order, 0)
        self._values = {node: len(graph.nodes[node].values) for node in self.order}
        for node in self.order:
            for value in graph.nodes[node].values:
                self._sizes[node] += sizes.get(value.key, 0)
        for node in reversed(self.order):
            if node != start:
                self._counts[self.parents[node]] += self._counts[node]
                self._values[self.parents[node]] += self._values[node]
                self._sizes[self.parents[node]] += self._sizes[node]

    def _gather(self) -> set[int]:
        """Puts the slot variables of lists below their variables. Returns those for which this can be done."""
        gathered = set()
        for each in self.in_lists:
            if each.variable is not None:
                self.distances[each.slot] = self.distances[each.variable] + 1
                self.parents[each.slot] = each.variable
                self.names[each.slot] = each.name
                gathered.add(each.slot)
        return gathered

    def path(self, node: int) -> list[str]:
        """The names of the last edges that lead to a node, the last one first."""
        names: list[str] = []
        while self.parents[node] != node and len(names) < _MOST_STEPS:
            names.append(self.names[node])
            node = self.parents[node]
        return names

    def is_empty(self, node: int) -> bool:
        """Whether there is no value at a node, nor below it."""
        return not self._values[node]

    def amount(self, nodes: Iterable[int]) -> tuple[int, int]:
        """How many nodes some nodes and all below them are, and the bytes of their tensors."""
        listed = list(nodes)
        return sum(map(self._counts.__getitem__, listed)), sum(map(self._sizes.__getitem__, listed))
