"""A saved object graph as a picture: nodes with a role and a label, edges with a name.

Colours are those of the guide's picture: optimizers red, variables blue, slot variables orange, other nodes black; slot
edges are dashed.

A picture has a limited number of nodes, because nobody can read thousands. What does not fit is *folded*: one node stands for several,
and says how many they are and how many bytes their tensors have. Objects are opened from the root on, as long as there is room. Of an
object with many children the first ones that hold tensors are drawn, and one node for the rest.
"""

from __future__ import annotations

import difflib
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from milepost.checkpoint.reader import CheckpointReader
from milepost.collector import collection_paused
from milepost.errors import KeyNotFoundError, printable
from milepost.graph.description import shortened
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.tensor import TensorSpec
from milepost.tools import amounts
from milepost.tools.drawing.keras_slots import keras_slots
from milepost.tools.drawing.object_tree import ObjectTree, is_optimizer, listed_slots
from milepost.tools.drawing.simpler import Simpler, joined, simpler
from milepost.tools.own_names import own_name_of

OBJECT: Final = "object"
OPTIMIZER: Final = "optimizer"
VARIABLE: Final = "variable"
SLOT: Final = "slot"

COLOURS: Final = {OBJECT: "#3c4043", OPTIMIZER: "#d93025", VARIABLE: "#1a73e8", SLOT: "#e8710a"}

MOST_NODES: Final = 60
"""The nodes of a picture, unless another limit is asked for."""
FEW_NODES: Final = 24
"""Of a graph with no more nodes, equal blocks are drawn one by one, and so are slot variables, with lines from their optimizer. In a larger one, these
lines would cross everything else."""
_SHARE: Final = 8
"""The children of one object may take this part of a picture that does not hold everything."""
_SHARE_IN_BANDS: Final = 3
"""The same of a picture in which blocks are drawn once, so that few children are left that look alike."""
_FEWEST_CHILDREN: Final = 3
_MOST_OFFERED: Final = 5


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """One node of the picture.

    Attributes:
        role: `OBJECT`, `OPTIMIZER`, `VARIABLE` or `SLOT`.
        label: The text in the node: the spec of its value, its own name if the edges do not say it, and how many nodes are folded into it.
        folded: How many nodes of the graph are folded into it.
        size: The bytes of their tensors.
        is_rest: Whether it is no node of the graph itself, and only stands for those that are folded into it.
        times: How many equal blocks it stands for, of which it is the first object; 1 for itself only.
        parent: The position of the node beside which it is drawn.
    """

    role: str
    label: str = ""
    folded: int = 0
    size: int = 0
    is_rest: bool = False
    times: int = 1
    parent: int = 0


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """One edge of the picture, between positions in `Picture.nodes`."""

    source: int
    target: int
    name: str
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """What to draw. The first node is the root.

    Attributes:
        nodes: The nodes.
        edges: The edges.
        copies: How many objects are not drawn because they are in blocks that are equal to one that is drawn.
        left_out: How many objects are not drawn because they hold nothing, or nothing that the object above them does not hold itself.
    """

    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]
    copies: int = 0
    left_out: int = 0


def specs_of(reader: CheckpointReader) -> dict[str, str]:
    """Element type and shape of each tensor of a checkpoint, as pictures and lists show them."""
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    return {key: str(TensorSpec(dtypes[key], tuple(shape))) for key, shape in shapes.items()}


@collection_paused()
def picture_of(
    graph: ObjectGraph,
    specs: Mapping[str, str],
    *,
    sizes: Mapping[str, int] | None = None,
    own_names: Mapping[int, str] = MappingProxyType({}),
    root: str = "",
    depth: int | None = None,
    limit: int | None = None,
    everything: bool = True,
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
        everything: Whether to draw each object by itself. Otherwise `milepost.tools.drawing.simpler` says what is left out or drawn once.

    Raises:
        KeyNotFoundError: There is no node at ``root``.
    """
    start = find_node(graph, root)
    may_be_large = not everything and len(graph.nodes) > FEW_NODES
    tree = ObjectTree(graph, start, sizes or {}, gather=may_be_large)
    is_large = may_be_large and len(tree.order) > FEW_NODES
    if may_be_large and not is_large:  # a small part of a large graph
        tree = ObjectTree(graph, start, sizes or {})
    simple = Simpler() if everything else simpler(graph, tree, specs, is_large=is_large)
    if limit is None and depth is None:
        limit = MOST_NODES
    shown, rests = _chosen(tree, depth, limit, _SHARE if everything else _SHARE_IN_BANDS)
    positions = {node: position for position, node in enumerate(shown)}
    nodes = [_drawn(graph, tree, simple, node, positions, rests, specs, own_names) for node in shown]
    stands_for = dict(positions)
    for parent, rest in rests.items():
        roles = {_role(graph, each, tree.slots) for each in rest}
        count, size = tree.amount(_with_joined(rest, simple))
        stands_for |= dict.fromkeys(rest, len(nodes))
        role = roles.pop() if len(roles) == 1 else OBJECT
        label = _folded_label(count, size)
        nodes.append(DrawnNode(role, label, count, size, is_rest=True, parent=positions[parent]))
    for node in tree.order:
        stands_for.setdefault(node, stands_for[tree.parents[node]])
    edges = tuple(_edges(graph, tree, simple, positions, stands_for))
    return Picture(tuple(nodes), edges, *_not_drawn(tree, simple, positions))


def _not_drawn(tree: ObjectTree, simple: Simpler, positions: Mapping[int, int]) -> tuple[int, int]:
    """How many nodes are in copies of blocks, and how many are left out. Those below a folded node are not counted: its label counts them."""
    joined = {each for others in simple.joined.values() for each in others}
    folded: set[int] = set()
    copies = left_out = 0
    for node in tree.every:  # parents come first
        if node in positions or node in joined:
            continue
        above = tree.parents[node]
        if above in folded or not (node in simple.copies or node in simple.left_out):
            folded.add(node)
        elif node in simple.copies:
            copies += 1
        else:
            left_out += 1
    return copies, left_out


def _drawn(
    graph: ObjectGraph,
    tree: ObjectTree,
    simple: Simpler,
    node: int,
    positions: Mapping[int, int],
    rests: Mapping[int, Sequence[int]],
    specs: Mapping[str, str],
    own_names: Mapping[int, str],
) -> DrawnNode:
    """A node of the graph as it is drawn. Arguments are those of `picture_of`, and what it has chosen."""
    left_out = [] if node in rests else [each for each in tree.below[node] if each not in positions]
    role, (count, size) = _role(graph, node, tree.slots), tree.amount(_with_joined(left_out, simple))
    values = [specs.get(value.key, value.name) for value in graph.nodes[node].values]
    if node in simple.joined:
        others = simple.joined[node]
        count, size = len(others), sum(tree.amount([each])[1] for each in (node, *others))
        every = [specs.get(value.key, value.name) for each in (node, *others) for value in graph.nodes[each].values]
        values, folded = [joined_specs(every)], ""
    else:
        folded = _alone(graph, node, left_out, specs) if count == 1 else ""
        folded = folded or _folded_label(count, size)
    own_name = own_names.get(node) or ("" if role == SLOT else own_name_of(graph.nodes[node], tree.path(node)))
    if own_name and node not in simple.inside:
        values = [*values[:-1], " ".join([*values[-1:], f"({own_name})"])]
    slots = simple.slots_of.get(node, 0)
    times = simple.times.get(node, 1)
    folded = f"each {folded}" if folded and times > 1 else folded
    parts = [
        f"× {times}" if times > 1 else "",
        *values,
        amounts.plural(slots, "slot variable") if slots else "",
        folded,
    ]
    return DrawnNode(
        role, ", ".join(filter(None, parts)), count, size, times=times, parent=positions[tree.parents[node]]
    )


def _with_joined(nodes: Sequence[int], simple: Simpler) -> list[int]:
    """Nodes that are folded, and those that would be drawn with one of them."""
    return [each for node in nodes for each in (node, *simple.joined.get(node, ()))]


def joined_specs(specs: Sequence[str]) -> str:
    """Element types and shapes, each once, with how often it occurs.

    Example:
        >>> joined_specs(["float32[]", "float32[2]", "float32[2]"])
        'float32[], 2 × float32[2]'
    """
    counts = Counter(specs)
    return ", ".join(spec if count == 1 else f"{count} × {spec}" for spec, count in counts.items())


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


def _chosen(
    tree: ObjectTree, depth: int | None, limit: int | None, share: int
) -> tuple[list[int], dict[int, list[int]]]:
    """Which nodes to draw, and for some of them the children that one more node stands for."""
    start = tree.order[0]
    in_reach = [node for node in tree.order if depth is None or tree.distances[node] <= depth or node in tree.added]
    room = len(in_reach) - 1 if limit is None else limit - 1
    widest = max(_FEWEST_CHILDREN, (room + 1) // share) if len(in_reach) > room + 1 else len(in_reach)
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
    graph: ObjectGraph, tree: ObjectTree, simple: Simpler, positions: Mapping[int, int], stands_for: Mapping[int, int]
) -> Iterable[DrawnEdge]:
    to_folded: dict[tuple[int, int, bool], dict[str, None]] = {}
    for node, position in positions.items():
        for edge in graph.nodes[node].children:
            if edge.node in simple.times and tree.parents[edge.node] == node and edge.node in positions:
                if edge.name == tree.names[edge.node]:
                    yield DrawnEdge(position, positions[edge.node], simple.names[edge.node])
                continue
            target = stands_for.get(
                edge.node
            )  # None for what only a slot variable leads to, which is no leaf in a damaged graph
            if edge.node in positions:
                yield DrawnEdge(position, positions[edge.node], edge.name)
            elif target is not None and target != position:
                to_folded.setdefault((position, target, False), {})[edge.name] = None
    for start, slot, name in simple.slot_edges or _slot_edges(tree):
        source, target = stands_for.get(start), stands_for.get(slot)
        if source is None or target is None:  # in a block that is not drawn, or left out
            continue
        if slot in positions:
            yield DrawnEdge(source, target, name, dashed=True)
        elif source != target:
            to_folded.setdefault((source, target, True), {})[name] = None
    for (source, target, dashed), names in to_folded.items():
        yield DrawnEdge(source, target, joined(list(names)), dashed)


def _slot_edges(tree: ObjectTree) -> list[tuple[int, int, str]]:
    """The edges to slot variables from their optimizers, as far as these have lists of them, and from their variables."""
    edges = [(start, slot, name) for owner, variable, name, slot in tree.referred for start in (owner, variable)]
    return edges + [(variable, slot, name) for slot, variable, name in tree.in_lists if variable is not None]


def _folded_label(count: int, size: int) -> str:
    return f"{count:,} more{f', {amounts.size(size)}' if size else ''}" if count else ""


def _alone(graph: ObjectGraph, node: int, below: Sequence[int], specs: Mapping[str, str]) -> str:
    """What the only object is that is folded into a node; empty if that is not to be said in a few words."""
    names = [edge.name for edge in graph.nodes[node].children if edge.node == below[0]]
    values = graph.nodes[below[0]].values
    if len(names) != 1 or len(values) != 1 or values[0].key not in specs:
        return ""
    return f"{names[0]}: {specs[values[0].key]}"


def slots_of(graph: ObjectGraph) -> set[int]:
    """All slot variables: those that the graph lists, and those that Keras keeps in lists."""
    return listed_slots(graph) | {each.slot for each in keras_slots(graph)}


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
