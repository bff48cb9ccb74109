"""What a picture of an object graph leaves out, or draws once, so that it can be read.

- An object that holds nothing is left out, and so is one that holds only what the object above it holds under other names, such as a list of
  layers that are attributes, too.
- In a large graph, blocks that are equal are drawn once, with their number: objects below one object whose names differ in numbers only, such as ``0`` to ``11``.
  They are equal if everything below them is: names, element types, shapes, hints, slot variables, and which objects of the rest
  of the graph they refer to, or are referred to by. Names that variables have themselves do not count.
- The lists of all variables that optimizers of Keras have are left out.
- In a large graph, slot variables are drawn beside their variables, those of one variable as one node, without a line from the optimizer, which says how
  many it has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from milepost.graph.saved.object_graph import Node, ObjectGraph
from milepost.tools.drawing.keras_slots import OF_ALL
from milepost.tools.drawing.object_tree import ObjectTree, is_optimizer

_NUMBER: Final = re.compile(r"\d+")
_LAST_NUMBER: Final = re.compile(r"\d{1,9}$")
_MOST_NUMBERS: Final = 6
_MOST_NAMES: Final = 3
"""Names on one edge; of more, the first and the last."""
_MANY: Final = -1
_MOST_HOLDERS: Final = 8
_MOST_KINDS: Final = 8
"""Blocks that look alike and are not equal, with which another one is compared."""


@dataclass(slots=True)
class Simpler:
    """What becomes of a graph.

    Attributes:
        left_out: The nodes that are left out, because they hold nothing.
        copies: The nodes of blocks that are not drawn, because they are equal to one that is.
        times: How many equal blocks each first node of a drawn one stands for.
        names: The names of the edges to these blocks, as one text.
        inside: The nodes of blocks that are drawn once.
        joined: For a slot variable, those of the same variable that are drawn with it.
        slots_of: How many slot variables each optimizer has, if no lines show them.
        slot_edges: The dashed edges, if they are others than those of the graph.
    """

    left_out: set[int] = field(default_factory=set)
    copies: set[int] = field(default_factory=set)
    times: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    inside: set[int] = field(default_factory=set)
    joined: dict[int, list[int]] = field(default_factory=dict)
    slots_of: dict[int, int] = field(default_factory=dict)
    slot_edges: list[tuple[int, int, str]] = field(default_factory=list)


def joined(names: Sequence[str]) -> str:
    """The names on one edge.

    Example:
        >>> joined(["w", "b"]), joined(["0", "1", "2", "3"])
        ('w, b', '0 … 3')
    """
    return ", ".join(names) if len(names) <= _MOST_NAMES else f"{names[0]} … {names[-1]}"


def numbered(names: Sequence[str]) -> str:
    """The names of equal blocks, which differ in numbers only.

    Example:
        >>> numbered(["layer-0", "layer-1", "layer-2"]), numbered(["ln1", "ln2"]), numbered(["0", "2", "3"]), numbered(["b0_x", "b1_x"])
        ('layer-0 … 2', 'ln1, ln2', '0, 2, 3', 'b0_x, b1_x')
    """
    ends = [_LAST_NUMBER.search(name) for name in names]
    numbers = [int(end[0]) for end in ends if end is not None]
    if (
        len(names) < _MOST_NAMES
        or len({name[: end.start()] for name, end in zip(names, ends, strict=True) if end}) != 1
    ):
        return joined(names)
    if len(numbers) < len(names) or len(names) > _MOST_NUMBERS or numbers == [*range(numbers[0], numbers[-1] + 1)]:
        return f"{names[0]} … {numbers[-1]}" if len(numbers) == len(names) else joined(names)
    return ", ".join([names[0], *map(str, numbers[1:])])


def simpler(graph: ObjectGraph, tree: ObjectTree, specs: Mapping[str, str], *, is_large: bool) -> Simpler:
    """Decides what to leave out, and takes it out of a tree.

    Args:
        graph: The graph.
        tree: Its tree. ``order`` and ``below`` lose what is not drawn.
        specs: Element type and shape of each saved tensor, by key.
        is_large: Whether to draw equal blocks once, and slot variables together. Otherwise only what holds nothing is left out.
    """
    simple = Simpler()
    simple.left_out = _idle(graph, tree)
    _take_out(tree, simple.left_out)
    if is_large:
        _join_slots(tree, simple)
        _Blocks(graph, tree, specs, simple).draw_once()
    return simple


def _take_out(tree: ObjectTree, nodes: set[int]) -> None:
    """Takes nodes, and all below them, out of a tree."""
    for node in tree.order:  # parents come first
        if tree.parents[node] in nodes and node != tree.order[0]:
            nodes.add(node)
    tree.order = [node for node in tree.order if node not in nodes]
    tree.below = {node: [each for each in tree.below[node] if each not in nodes] for node in tree.order}


def _idle(graph: ObjectGraph, tree: ObjectTree) -> set[int]:
    """The nodes that hold nothing but what the node above them holds itself, by other names. All below them is left out with them."""
    begins, ends = _intervals(tree)
    # for each node without values, the nodes above those that it, or what is below it, refers to
    holders: dict[int, set[int]] = {}
    idle: set[int] = set()
    for node in reversed(tree.order[1:]):
        if not tree.is_empty(node) or graph.nodes[node].slots:
            continue
        if tree.names[node] in OF_ALL and is_optimizer(graph.nodes[tree.parents[node]]):
            idle.add(node)
        targets = [edge.node for edge in graph.nodes[node].children if edge.node in tree.parents]
        found = {tree.owners[each] if each in tree.gathered else tree.parents[each] for each in targets}
        for each in tree.below[node]:
            found |= holders.get(each, {_MANY})
        outside = {each for each in found if each == _MANY or not begins[node] <= begins[each] < ends[node]}
        holders[node] = outside if len(outside) <= _MOST_HOLDERS else {_MANY}
        if outside <= {tree.parents[node]}:
            idle.add(node)
    return idle


def _intervals(tree: ObjectTree) -> tuple[dict[int, int], dict[int, int]]:
    """For each node its number in an order in which all that is below it follows it, and the number after the last of these."""
    counts = dict.fromkeys(tree.order, 1)
    for node in reversed(tree.order[1:]):
        counts[tree.parents[node]] += counts[node]
    begins = {tree.order[0]: 0}
    for node in tree.order:
        at = begins[node] + 1
        for each in tree.below[node]:
            begins[each] = at
            at += counts[each]
    return begins, {node: begins[node] + counts[node] for node in tree.order}


def _join_slots(tree: ObjectTree, simple: Simpler) -> None:
    """Draws the slot variables of each variable as one node for each optimizer."""
    owners = {owner: len(simple.slots_of) for owner in tree.owners.values()}
    taken: set[int] = set()
    for node in tree.order:
        by_owner: dict[int, list[int]] = {}
        for each in tree.below[node]:
            if each in tree.owners and tree.parents[each] == node and not tree.below[each]:
                by_owner.setdefault(tree.owners[each], []).append(each)
        for owner, (first, *others) in by_owner.items():
            simple.slots_of[owner] = simple.slots_of.get(owner, 0) + 1 + len(others)
            of = f" of {tree.names[owner]}" if len(owners) > 1 else ""
            simple.slot_edges.append((node, first, joined([tree.names[each] for each in (first, *others)]) + of))
            if others:
                simple.joined[first] = others
                taken.update(others)
    _take_out(tree, taken)


class _Blocks:
    """Finds equal blocks."""

    def __init__(self, graph: ObjectGraph, tree: ObjectTree, specs: Mapping[str, str], simple: Simpler) -> None:
        self._graph = graph
        self._tree = tree
        self._specs = specs
        self._simple = simple
        self._sources: dict[int, set[tuple[int, str]]] = {node: set() for node in tree.order}
        for node in tree.order:
            for name, target in self._references(node):
                if target in self._sources:
                    self._sources[target].add((node, name))
        self._kinds = self._looks()

    def draw_once(self) -> None:
        """Takes all but the first of equal blocks out of the tree."""
        tree, simple = self._tree, self._simple
        copies: set[int] = set()
        for node in tree.order:
            if node in copies or tree.parents[node] in copies:
                copies.add(node)
                continue
            for first, *others in self._groups(node):
                if others:
                    simple.times[first] = 1 + len(others)
                    simple.names[first] = numbered([tree.names[each] for each in (first, *others)])
                    copies.update(others)
        for node in tree.order:
            if node in simple.times or tree.parents[node] in simple.inside:
                simple.inside.add(node)
        _take_out(tree, copies)
        simple.copies = copies

    def _groups(self, node: int) -> list[list[int]]:
        """The children of a node, those that are equal together."""
        alike: dict[tuple[str, int], list[list[int]]] = {}
        for each in self._tree.below[node]:
            stem, count = _NUMBER.subn("#", self._tree.names[each])
            groups = alike.setdefault((stem, self._kinds[each]), [])
            is_numbered = bool(count) and each not in self._tree.owners
            group = (
                next((one for one in groups[:_MOST_KINDS] if self._are_equal(one[0], each)), None)
                if is_numbered
                else None
            )
            if group is None:
                groups.append([each])
            else:
                group.append(each)
        return [group for groups in alike.values() for group in groups]

    def _references(self, node: int) -> list[tuple[str, int]]:
        """What a node refers to, by name."""
        saved = self._graph.nodes[node]
        own = [(edge.name, edge.node) for edge in saved.children if edge.node not in self._simple.left_out]
        return own + [(f"\0{each.name}", each.slot) for each in saved.slots]

    def _looks(self) -> dict[int, int]:
        """A number for each node, the same for nodes of which everything below looks alike."""
        numbers: dict[Any, int] = {}
        kinds: dict[int, int] = {}
        for node in reversed(self._tree.order):
            below = tuple((self._tree.names[each], kinds[each]) for each in self._tree.below[node])
            joined_slots = tuple(self._facts(each) for each in self._simple.joined.get(node, ()))
            kinds[node] = numbers.setdefault((self._facts(node), joined_slots, below), len(numbers))
        return kinds

    def _facts(self, node: int) -> tuple[Any, ...]:
        """What a node is by itself, except for the names that its variables have themselves."""
        saved: Node = self._graph.nodes[node]
        values = tuple((value.name, self._specs.get(value.key, "")) for value in saved.values)
        owner = self._tree.owners.get(node)
        return (
            values,
            saved.python,
            saved.hints,
            saved.saver,
            owner,
            self._tree.names[node] if owner is not None else "",
        )

    def _are_equal(self, first: int, other: int) -> bool:
        """Whether two blocks that look alike are connected alike, too: in themselves, and with the rest of the graph."""
        counterparts = dict(self._pairs(first, other))
        blocks = set(counterparts), set(counterparts.values())
        above = self._tree.parents[first]
        for one, another in counterparts.items():
            ones = [(name, counterparts.get(target, target)) for name, target in self._references(one)]
            if ones != self._references(another):
                return False
            outside = [self._from_outside(node, block) for node, block in zip((one, another), blocks, strict=True)]
            if one == first:  # the names by which the object above them has them are different
                outside = [{source for source in sources if source[0] != above} for sources in outside]
            if outside[0] != outside[1]:
                return False
        return True

    def _pairs(self, first: int, other: int) -> list[tuple[int, int]]:
        """The nodes of two blocks that look alike, each with its counterpart."""
        pairs = [(first, other)]
        for one, another in pairs:  # the list grows while it is read
            pairs += zip(self._tree.below[one], self._tree.below[another], strict=True)
        return pairs

    def _from_outside(self, node: int, block: set[int]) -> set[tuple[int, str]]:
        """The references to a node from outside of its block."""
        return {source for source in self._sources[node] if source[0] not in block}
