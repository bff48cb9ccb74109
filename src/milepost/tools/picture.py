"""A saved object graph as a picture: nodes with a role and a label, edges with a name.

Colours are those of the guide's picture: optimizers red, variables blue, slot variables orange, other nodes black; slot
edges are dashed.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from milepost.checkpoint import CheckpointReader
from milepost.errors import KeyNotFoundError
from milepost.graph.object_graph import ObjectGraph
from milepost.tensor import TensorSpec

OBJECT: Final = "object"
OPTIMIZER: Final = "optimizer"
VARIABLE: Final = "variable"
SLOT: Final = "slot"

COLOURS: Final = {OBJECT: "#3c4043", OPTIMIZER: "#d93025", VARIABLE: "#1a73e8", SLOT: "#e8710a"}

MOST_NODES: Final = 500
"""With more nodes than this, slot variables included, subtrees are folded."""


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """One node of the picture.

    Attributes:
        role: `OBJECT`, `OPTIMIZER`, `VARIABLE` or `SLOT`.
        label: The text in the node: the spec of its value, or the number of nodes folded into it.
    """

    role: str
    label: str = ""


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


def picture_of(graph: ObjectGraph, specs: Mapping[str, str], *, root: str = "", depth: int | None = None) -> Picture:
    """Chooses which part of a graph to draw, and how.

    Args:
        graph: The saved graph.
        specs: Element type and shape of each saved tensor, by key.
        root: The path to the first node: edge names joined by ``/``; by default the root.
        depth: The largest number of edges to follow from the first node; by default as many as fit `MOST_NODES`.

    Raises:
        KeyNotFoundError: There is no node at ``root``.
    """
    start = find_node(graph, root)
    distances, parents = _reach(graph, start)
    slots = {
        reference.slot: (owner, reference)
        for owner, node in enumerate(graph.nodes)
        for reference in node.slots
        if owner in distances and reference.variable in distances
    }
    # A slot variable that no edge leads to comes and goes with its variable.
    sizes = dict.fromkeys(distances, 1)
    for slot, (_, reference) in slots.items():
        if slot not in distances:
            sizes[reference.variable] += 1
    if depth is None:
        depth = _depth_that_fits(distances, sizes)
    near = [node for node, distance in distances.items() if distance <= depth]
    shown = {node: position for position, node in enumerate(near)}
    folded = dict.fromkeys(distances, 0)
    for node in reversed(distances):
        if node not in shown:
            folded[parents[node]] += sizes[node] + folded[node]
    edges = [
        DrawnEdge(shown[node], shown[edge.node], edge.name)
        for node in shown
        for edge in graph.nodes[node].children
        if edge.node in shown
    ]
    for slot, (owner, reference) in slots.items():
        if owner in shown and reference.variable in shown and slot not in shown:
            shown[slot] = len(shown)
            edges.append(DrawnEdge(shown[owner], shown[slot], reference.name, dashed=True))
            edges.append(DrawnEdge(shown[reference.variable], shown[slot], reference.name, dashed=True))
    every_slot = {reference.slot for node in graph.nodes for reference in node.slots}
    nodes = []
    for node in shown:
        label = ", ".join(specs.get(value.key, value.name) for value in graph.nodes[node].values)
        hidden = folded.get(node, 0)
        nodes.append(DrawnNode(_role(graph, node, every_slot), f"{hidden} more" if hidden else label))
    return Picture(tuple(nodes), tuple(edges))


def find_node(graph: ObjectGraph, path: str) -> int:
    """The node that a path of edge names joined by ``/`` leads to; names may contain ``/`` themselves.

    Raises:
        KeyNotFoundError: There is no such path.
    """
    places = {(0, path.strip("/"))}
    seen = set(places)
    while places:
        node, rest = places.pop()
        if not rest:
            return node
        for edge in graph.nodes[node].children:
            if rest == edge.name or rest.startswith(edge.name + "/"):
                place = (edge.node, rest[len(edge.name) + 1 :])
                if place not in seen:
                    seen.add(place)
                    places.add(place)
    children = ", ".join(edge.name for edge in graph.nodes[0].children)
    raise KeyNotFoundError(
        "the checkpoint has no object at this path", key=path, remedy=f"start the path with one of: {children}"
    )


def _reach(graph: ObjectGraph, start: int) -> tuple[dict[int, int], dict[int, int]]:
    """How far from ``start`` every node is, nearest first, and the node it was reached from."""
    distances, parents = {start: 0}, {start: start}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for edge in graph.nodes[node].children:
            if edge.node not in distances:
                distances[edge.node] = distances[node] + 1
                parents[edge.node] = node
                queue.append(edge.node)
    return distances, parents


def _depth_that_fits(distances: Mapping[int, int], sizes: Mapping[int, int]) -> int:
    """The greatest depth to which all nodes fit `MOST_NODES`; the root alone is always drawn."""
    at_depth = [0] * (max(distances.values()) + 1)
    for node, distance in distances.items():
        at_depth[distance] += sizes[node]
    totals = itertools.accumulate(at_depth)
    return max(0, sum(total <= MOST_NODES for total in totals) - 1)


def _role(graph: ObjectGraph, node: int, slots: Collection[int]) -> str:
    if node in slots:
        return SLOT
    if graph.nodes[node].slots:
        return OPTIMIZER
    return VARIABLE if graph.nodes[node].values else OBJECT
