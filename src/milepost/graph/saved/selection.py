"""Leaves parts of an object graph out, by name.

An object may have several names, as a tied weight has. Its value is taken if one of them is, and then only these names lead to it; but not
if its shortest name, which is in its key, is ignored. An optimizer has no other name than that: a compiled model of Keras leads to its
optimizer, too, and "the model" does not mean it.

A slot variable is decided by itself, by the path that is in its key. If it is taken, its optimizer and its variable stay in the graph,
also without their values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple

from milepost.graph.keys import child_path, slot_path
from milepost.graph.live_graph import LiveGraph
from milepost.graph.saved.nodes import Node, SavedValue, SlotReference
from milepost.graph.saved.object_graph import ObjectGraph

Test = Callable[[str], bool]
"""What is asked of a path."""
_MOST_NAMES: Final = 64
"""The largest number of names of one object that are looked at, because a graph can have more than any file has bytes."""


class Selected(NamedTuple):
    """What is selected.

    Attributes:
        graph: The graph. Its nodes have the same numbers as before.
        left_out: The keys of the values that are left out.
        variables: By node, the values of variables that are left out although their slot variables are not.
    """

    graph: ObjectGraph
    left_out: list[str]
    variables: dict[int, tuple[SavedValue, ...]]


class _Way:
    """One way from the root to a node.

    Args:
        node: The node.
        path: The names of the edges, as a path.
        name: The name of the last edge.
        above: The way to the node that has this edge; None for the root.
    """

    __slots__ = ("above", "is_kept", "name", "node", "path")

    def __init__(self, node: int, path: str = "", name: str = "", above: _Way | None = None) -> None:
        self.node = node
        self.path = path
        self.name = name
        self.above = above
        self.is_kept = False

    def passes(self, node: int) -> bool:
        """Whether a node is on the way."""
        way: _Way | None = self
        while way is not None and way.node != node:
            way = way.above
        return way is not None


def paths_of_optimizers(live: LiveGraph) -> frozenset[str]:
    """The paths of the live objects that may have slot variables."""
    objects = zip(live.paths, live.adapters, live.objects, strict=True)
    return frozenset(
        path for path, adapter, obj in objects if "has_slots" in adapter.overrides and adapter.has_slots(obj)
    )


def names_of_live(live: LiveGraph) -> dict[int, list[str]]:
    """The paths that lead to each live object, shorter ones first."""
    nodes = [Node(tuple(edges)) for edges in live.edges]
    return {node: [way.path for way in ways] for node, ways in _ways(nodes, paths_of_optimizers(live)).items()}


def selected(
    graph: ObjectGraph, takes: Test, ignores: Test, optimizers: Collection[str] = (), *, as_saved: bool = False
) -> Selected:
    """An object graph without some values, without objects below which nothing else is left, and without the names that lead to these.

    Args:
        graph: The saved graph.
        takes: Whether a value is taken, by a path of its object or slot variable. The values of the root are taken.
        ignores: Whether it is ignored, by the path that is in its key.
        optimizers: The paths of optimizers. Nodes with slot variables are optimizers too.
        as_saved: Whether the graph is read without live objects. Then no variable stays without its value.
    """
    return _Selection(graph, takes, ignores, optimizers, as_saved).run()


class _Selection:
    def __init__(
        self, graph: ObjectGraph, takes: Test, ignores: Test, optimizers: Collection[str], as_saved: bool
    ) -> None:
        self._nodes = list(graph.nodes)
        self._takes = takes
        self._ignores = ignores
        self._as_saved = as_saved
        self._ways = _ways(self._nodes, optimizers)
        self._edges: set[tuple[int, str]] = set()
        """The edges that stay, each with the node that it begins at."""

    def run(self) -> Selected:
        taken = {node for node in self._ways if self._takes_values(node)}
        kept = {node: tuple(self._slots(node)) for node, _ in self._with_slots()}
        slots = {slot.slot for references in kept.values() for slot in references}
        gone = {slot.slot for node, references in self._with_slots() for slot in references} - slots
        left_out = []
        variables = {
            slot.variable: self._nodes[slot.variable].values
            for references in kept.values()
            for slot in references
            if slot.variable in self._ways and slot.variable not in taken
        }
        for node in {*self._ways, *gone} - taken - slots:
            if self._nodes[node].values or self._nodes[node].saver:
                left_out += [value.key for value in self._nodes[node].values]
                self._nodes[node] = self._nodes[node]._replace(values=(), saver="", python="")
        for node in self._ways:
            self._drop_edges(node)
        for node, references in kept.items():
            if len(references) < len(self._nodes[node].slots):
                self._nodes[node] = self._nodes[node]._replace(slots=references)
        return Selected(ObjectGraph(tuple(self._nodes)), sorted(left_out), variables)

    def _with_slots(self) -> Iterator[tuple[int, tuple[SlotReference, ...]]]:
        for node in self._ways:
            if self._nodes[node].slots:
                yield node, self._nodes[node].slots

    def _takes_values(self, node: int) -> bool:
        """Whether the values of a node are taken. If so, it keeps the names that say so."""
        if not node:
            return True
        if self._nodes[node].children and not self._nodes[node].values:
            return False  # it stays if anything below it does
        taken = [way for way in self._ways[node] if self._takes(way.path)]
        if self._ignores(self._ways[node][0].path):
            return False
        for way in taken:
            self._keep(way)
        return bool(taken)

    def _slots(self, node: int) -> Iterator[SlotReference]:
        """The slot variables of an optimizer that are taken."""
        for slot in self._nodes[node].slots:
            variables = self._ways.get(slot.variable)
            if variables is None:  # nothing leads to it, so it has no name
                yield slot
                continue
            owners = self._ways[node]
            if self._ignores(slot_path(variables[0].path, owners[0].path, slot.name)):
                continue
            for variable, owner in product(variables, owners):
                if self._takes(slot_path(variable.path, owner.path, slot.name)):
                    if not self._as_saved:
                        self._keep(variable)
                    self._keep(owner)
                    yield slot
                    break

    def _keep(self, way: _Way) -> None:
        while way.above is not None and not way.is_kept:
            way.is_kept = True
            self._edges.add((way.above.node, way.name))
            way = way.above

    def _drop_edges(self, node: int) -> None:
        """A list or dict that loses a member loses its type. If a restore knows the type, it assumes that no member is left out."""
        children = self._nodes[node].children
        kept = tuple(edge for edge in children if (node, edge.name) in self._edges)
        if len(kept) < len(children):
            python = "" if node else self._nodes[node].python
            self._nodes[node] = self._nodes[node]._replace(children=kept, python=python)


def _ways(nodes: Sequence[Node], optimizers: Collection[str]) -> dict[int, list[_Way]]:
    """The ways to each node that the root leads to, shorter ones first. None of them passes a node twice."""
    root = _Way(0)
    ways, pending = {0: [root]}, deque([root])
    while pending:
        way = pending.popleft()
        for name, node in nodes[way.node].children:
            known = ways.setdefault(node, [])
            is_optimizer = known and (nodes[node].slots or known[0].path in optimizers)
            if known and (is_optimizer or len(known) == _MOST_NAMES or way.passes(node)):
                continue
            known.append(_Way(node, child_path(way.path, name, is_root=way.above is None), name, way))
            pending.append(known[-1])
    return ways
