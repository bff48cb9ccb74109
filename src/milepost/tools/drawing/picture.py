"""A saved object graph as a picture: nodes with a role and a label, edges with a name.

Colours are those of the guide's picture: optimizers red, variables blue, slot variables orange, other nodes black; slot
edges are dashed.

A picture has a limited number of nodes, because nobody can read thousands. What does not fit is *folded*: one node stands for several,
and says how many they are and how many bytes their tensors have. Objects are opened from the root on, as long as there is room. Of an
object with many children the first ones that hold tensors are drawn, and one node for the rest.
"""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from milepost.checkpoint.reader import CheckpointReader
from milepost.errors import KeyNotFoundError, printable
from milepost.graph.description import shortened
from milepost.graph.saved.object_graph import Node, ObjectGraph
from milepost.tensor import TensorSpec
from milepost.tools import amounts
from milepost.tools.drawing.keras_slots import ITERATIONS, keras_slots
from milepost.tools.own_names import own_name_of

OBJECT: Final = "object"
OPTIMIZER: Final = "optimizer"
VARIABLE: Final = "variable"
SLOT: Final = "slot"

COLOURS: Final = {OBJECT: "#3c4043", OPTIMIZER: "#d93025", VARIABLE: "#1a73e8", SLOT: "#e8710a"}

MOST_NODES: Final = 60
"""The nodes of a picture, unless another limit is asked for."""
_SHARE: Final = 8
"""The children of one object may take this part of a picture that does not hold everything."""
_FEWEST_CHILDREN: Final = 3
_MOST_NAMES: Final = 3
"""Names on one edge to a folded node; of more, the first and the last."""
_MOST_OFFERED: Final = 5
_MOST_STEPS: Final = 100
"""Edges that are followed upwards from a node."""
_OF_KERAS: Final = ({ITERATIONS}, {"iter", "decay"})
"""Children that only optimizers have: those of Keras 3 and tf_keras, and those of tf_keras' legacy classes."""


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """One node of the picture.

    Attributes:
        role: `OBJECT`, `OPTIMIZER`, `VARIABLE` or `SLOT`.
        label: The text in the node: the spec of its value, its own name if the edges do not say it, and how many nodes are folded into it.
        folded: How many nodes of the graph are folded into it.
        size: The bytes of their tensors.
        is_rest: Whether it is no node of the graph itself, and only stands for those that are folded into it.
    """

    role: str
    label: str = ""
    folded: int = 0
    size: int = 0
    is_rest: bool = False


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """One edge of the picture, between positions in `Picture.nodes`."""

    source: int
    target: int
    name: str
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """What to draw. The first node is the root."""

    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]


def specs_of(reader: CheckpointReader) -> dict[str, str]:
    """Element type and shape of each tensor of a checkpoint, as pictures and lists show them."""
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    return {key: str(TensorSpec(dtypes[key], tuple(shape))) for key, shape in shapes.items()}


def picture_of(
    graph: ObjectGraph,
    specs: Mapping[str, str],
    *,
    sizes: Mapping[str, int] | None = None,
    own_names: Mapping[int, str] = MappingProxyType({}),
    root: str = "",
    depth: int | None = None,
    limit: int | None = None,
) -> Picture:
    """Chooses which part of a graph to draw, and how.

    Args:
        graph: The saved graph.
        specs: Element type and shape of each saved tensor, by key.
        sizes: The bytes of each saved tensor, by key. Without them, folded nodes say no bytes.
        own_names: What nodes are called themselves, in addition to the names of variables in the graph.
        root: The path to the first node: edge names joined by ``/``; by default the root.
        depth: The largest number of edges to follow from the first node; by default any number.
        limit: The largest number of nodes to draw, at least 1; by default `MOST_NODES`, or any number if there is a depth.

    Raises:
        KeyNotFoundError: There is no node at ``root``.
    """
    tree = _Tree(graph, find_node(graph, root), sizes or {})
    if limit is None and depth is None:
        limit = MOST_NODES
    shown, rests = _chosen(tree, depth, limit)
    positions = {node: position for position, node in enumerate(shown)}
    nodes = []
    for node in shown:
        left_out = [] if node in rests else [each for each in tree.below[node] if each not in positions]
        role, count, size = _role(graph, node, tree.slots), *tree.amount(left_out)
        values = [specs.get(value.key, value.name) for value in graph.nodes[node].values]
        folded = _alone(graph, node, left_out, specs) if count == 1 else ""
        own_name = own_names.get(node) or ("" if role == SLOT else own_name_of(graph.nodes[node], tree.path(node)))
        if own_name:
            values = [*values[:-1], " ".join([*values[-1:], f"({own_name})"])]
        label = ", ".join(filter(None, [*values, folded or _folded_label(count, size)]))
        nodes.append(DrawnNode(role, label, count, size))
    stands_for = dict(positions)
    for rest in rests.values():
        roles = {_role(graph, each, tree.slots) for each in rest}
        count, size = tree.amount(rest)
        stands_for |= dict.fromkeys(rest, len(nodes))
        role = roles.pop() if len(roles) == 1 else OBJECT
        nodes.append(DrawnNode(role, _folded_label(count, size), count, size, is_rest=True))
    for node in tree.order:
        stands_for.setdefault(node, stands_for[tree.parents[node]])
    return Picture(tuple(nodes), tuple(_edges(graph, tree, positions, stands_for)))


def find_node(graph: ObjectGraph, path: str) -> int:
    """The node that a path of edge names joined by ``/`` leads to; names may contain ``/`` themselves.

    Raises:
        KeyNotFoundError: There is no such path.
    """
    candidates = {(0, path.strip("/"))}
    seen = set(candidates)
    while candidates:
        node, rest = candidates.pop()
        if not rest:
            return node
        for edge in graph.nodes[node].children:
            if rest == edge.name or rest.startswith(edge.name + "/"):
                candidate = (edge.node, rest[len(edge.name) + 1 :])
                if candidate not in seen:
                    seen.add(candidate)
                    candidates.add(candidate)
    names = [edge.name for edge in graph.nodes[0].children]
    near = difflib.get_close_matches(path.partition("/")[0], names, _MOST_OFFERED)
    offered = list(dict.fromkeys([*near, *names]))[:_MOST_OFFERED]
    more = ", ..." if len(names) > _MOST_OFFERED else ""
    remedy = f"start the path with one of: {', '.join(map(shortened, offered))}{more}"
    raise KeyNotFoundError("the checkpoint has no object at this path", key=path, remedy=remedy)


class _Tree:
    """The nodes that a picture may show, each below the node it was reached from. A slot variable that no edge leads to is below its
    variable.

    Attributes:
        order: The nodes, parents before their children.
        distances: How many edges each is away from the first one.
        parents: The node above each.
        names: The name of the edge from there.
        below: The nodes below each.
        slots: All slot variables of the graph.
        in_lists: Those of Keras, which edges lead to, as slot variable, variable and name.
        referred: For each slot variable below its variable, the optimizers' references to it.
    """

    def __init__(self, graph: ObjectGraph, start: int, sizes: Mapping[str, int]) -> None:
        self.distances, self.parents, self.names = {start: 0}, {start: start}, {start: ""}
        in_lists = keras_slots(graph)
        self.slots = _listed_slots(graph) | {each.slot for each in in_lists}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            for edge in graph.nodes[node].children:
                if edge.node not in self.distances:
                    self.distances[edge.node] = self.distances[node] + 1
                    self.parents[edge.node] = node
                    self.names[edge.node] = edge.name
                    queue.append(edge.node)
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
        self.added = {slot for *_, slot in self.referred}
        self.order = sorted(self.distances, key=self.distances.__getitem__)
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


def _chosen(tree: _Tree, depth: int | None, limit: int | None) -> tuple[list[int], dict[int, list[int]]]:
    """Which nodes to draw, and for some of them the children that one more node stands for."""
    start = tree.order[0]
    in_reach = [node for node in tree.order if depth is None or tree.distances[node] <= depth or node in tree.added]
    room = len(in_reach) - 1 if limit is None else limit - 1
    widest = max(_FEWEST_CHILDREN, (room + 1) // _SHARE) if len(in_reach) > room + 1 else len(in_reach)
    shown, rests, queue = [start], {}, deque([start])
    while queue:
        node = queue.popleft()
        children = tree.below[node]
        if depth is not None and tree.distances[node] >= depth:
            children = [each for each in children if each in tree.added]
        # one child would take as much room as the node that stands for it
        kept = children
        if len(children) > widest + 1:
            first = {*([each for each in children if not tree.is_empty(each)] or children)[:widest]}
            kept = [each for each in children if each in first]
        needed = len(kept) + (len(kept) < len(children))
        if not kept or needed > room:
            continue
        room -= needed
        shown += kept
        queue.extend(kept)
        if len(kept) < len(children):
            rests[node] = [each for each in tree.below[node] if each not in first]
    return shown, rests


def _edges(
    graph: ObjectGraph, tree: _Tree, positions: Mapping[int, int], stands_for: Mapping[int, int]
) -> Iterable[DrawnEdge]:
    to_folded: dict[tuple[int, int, bool], dict[str, None]] = {}
    for node, position in positions.items():
        for edge in graph.nodes[node].children:
            target = stands_for.get(
                edge.node
            )  # None for what only a slot variable leads to, which is no leaf in a damaged graph
            if edge.node in positions:
                yield DrawnEdge(position, positions[edge.node], edge.name)
            elif target is not None and target != position:
                to_folded.setdefault((position, target, False), {})[edge.name] = None
    slots = [(start, slot, name) for owner, variable, name, slot in tree.referred for start in (owner, variable)]
    slots += [(variable, slot, name) for slot, variable, name in tree.in_lists if variable is not None]
    for start, slot, name in slots:
        source, target = stands_for[start], stands_for[slot]
        if slot in positions:
            yield DrawnEdge(source, target, name, dashed=True)
        elif source != target:
            to_folded.setdefault((source, target, True), {})[name] = None
    for (source, target, dashed), names in to_folded.items():
        yield DrawnEdge(source, target, _joined(list(names)), dashed)


def _joined(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _MOST_NAMES else f"{names[0]} … {names[-1]}"


def _folded_label(count: int, size: int) -> str:
    return f"{count:,} more{f', {amounts.size(size)}' if size else ''}" if count else ""


def _alone(graph: ObjectGraph, node: int, below: Sequence[int], specs: Mapping[str, str]) -> str:
    """What the only object is that is folded into a node; empty if that is not to be said in a few words."""
    names = [edge.name for edge in graph.nodes[node].children if edge.node == below[0]]
    values = graph.nodes[below[0]].values
    if len(names) != 1 or len(values) != 1 or values[0].key not in specs:
        return ""
    return f"{names[0]}: {specs[values[0].key]}"


def is_optimizer(node: Node) -> bool:
    """Whether a node is an optimizer: it has slot variables, or the children that optimizers of Keras have, also without any."""
    names = {edge.name for edge in node.children}
    return bool(node.slots) or any(map(names.issuperset, _OF_KERAS))


def slots_of(graph: ObjectGraph) -> set[int]:
    """All slot variables: those that the graph lists, and those that Keras keeps in lists."""
    return _listed_slots(graph) | {each.slot for each in keras_slots(graph)}


def _listed_slots(graph: ObjectGraph) -> set[int]:
    return {reference.slot for node in graph.nodes for reference in node.slots}


def _role(graph: ObjectGraph, node: int, slots: Collection[int]) -> str:
    if node in slots:
        return SLOT
    if is_optimizer(graph.nodes[node]):
        return OPTIMIZER
    return VARIABLE if graph.nodes[node].values else OBJECT


def tree_rows(picture: Picture) -> list[list[str]]:
    """A picture as a tree: for each node its name, indented by its distance from the root, and what it is. An object that has several names
    is described at the first one, and the others say which that is.

    Example:
        >>> nodes = (DrawnNode(OBJECT), DrawnNode(VARIABLE, "float32[2]"))
        >>> tree_rows(Picture(nodes, (DrawnEdge(0, 1, "v"), DrawnEdge(0, 1, "w"))))
        [['(root)', 'object'], ['  v', 'float32[2]'], ['  w', 'the same as v']]
    """
    below: dict[int, list[DrawnEdge]] = {}
    for edge in picture.edges:
        below.setdefault(edge.source, []).append(edge)
    paths: dict[int, str] = {0: ""}
    rows = [["(root)", _described(picture.nodes[0])]]
    stack = [iter(below.get(0, ()))]
    while stack:
        try:
            edge = next(stack[-1])
        except StopIteration:
            stack.pop()
            continue
        name = "  " * len(stack) + printable(edge.name, one_line=True)
        if edge.target in paths:
            rows.append([name, f"the same as {paths[edge.target] or '(root)'}"])
            continue
        parent = paths[edge.source]
        paths[edge.target] = printable(f"{parent}/{edge.name}" if parent else edge.name, one_line=True)
        rows.append([name, _described(picture.nodes[edge.target])])
        stack.append(iter(below.get(edge.target, ())))
    return rows


def _described(node: DrawnNode) -> str:
    what = {OPTIMIZER: "optimizer", SLOT: "slot variable", VARIABLE: ""}.get(node.role, "" if node.label else "object")
    return ", ".join(filter(None, [what, printable(node.label, one_line=True)]))
