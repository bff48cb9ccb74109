"""A saved object graph as something to draw: nodes with a role and a label, edges with a name.

Colours are those of the guide's picture: optimizers red, variables blue, slot variables orange, other nodes black; slot
edges are dashed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
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
"""Above this many, subtrees are folded away."""


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """One node of the picture.

    Attributes:
        role: `OBJECT`, `OPTIMIZER`, `VARIABLE` or `SLOT`.
        label: What is written in it: the spec of its value, or how many nodes are folded into it.
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
    """Chooses what of a graph is drawn, and how.

    Args:
        graph: The saved graph.
        specs: Element type and shape of each saved tensor, by key.
        root: Edge names joined by ``/`` that lead to the node to begin with; by default the root.
        depth: The number of edges to follow from there, at most; by default as many as fit `MOST_NODES`.

    Raises:
        KeyNotFoundError: ``root`` names an edge that is not there.
    """
    start = find_node(graph, root)
    distances = _distances(graph, start)
    if depth is None and len(distances) > MOST_NODES:
        depth = 1
        while sum(distance <= depth + 1 for distance in distances.values()) <= MOST_NODES:
            depth += 1
    shown = {
        node: position
        for position, node in enumerate(n for n, distance in distances.items() if depth is None or distance <= depth)
    }
    slots = {
        slot: (owner, reference)
        for owner, node in enumerate(graph.nodes)
        for reference in node.slots
        for slot in (reference.slot,)
    }
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
    nodes = []
    for node in shown:
        hidden = len({edge.node for edge in graph.nodes[node].children} - shown.keys())
        label = ", ".join(specs.get(value.key, value.name) for value in graph.nodes[node].values)
        nodes.append(DrawnNode(_role(graph, node, slots), f"{hidden} more" if hidden else label))
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
    raise KeyNotFoundError("no path of this name leads anywhere", key=path, remedy=f"begin with one of: {children}")


def _distances(graph: ObjectGraph, start: int) -> dict[int, int]:
    distances = {start: 0}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for edge in graph.nodes[node].children:
            if edge.node not in distances:
                distances[edge.node] = distances[node] + 1
                queue.append(edge.node)
    return distances


def _role(graph: ObjectGraph, node: int, slots: Mapping[int, object]) -> str:
    if node in slots:
        return SLOT
    if graph.nodes[node].slots:
        return OPTIMIZER
    return VARIABLE if graph.nodes[node].values else OBJECT
