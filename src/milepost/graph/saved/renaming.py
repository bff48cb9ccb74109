"""Renames saved values, and leaves some out: which parts of a tree move, and an object graph with these parts moved.

A program gives each saved value a new name. Objects are more than their values: a list has an order, an optimizer has
slot variables. So if all values below an object get new names that differ only in the same first part, the object moves
as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

from milepost.errors import UnsupportedError
from milepost.graph.keys import escape, unescape
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph

Path = tuple[str, ...]
"""Names of the edges from the root to an object."""
Rename = Callable[[str], str | None]
"""The new name of a saved value, by its name, or None to leave it out."""
_MIXED: Final = object()
"""The values below an object do not move together."""


class Move(NamedTuple):
    """A part of a tree that moves to another path.

    Attributes:
        old: Its path.
        new: Its new path, or None if it is left out.
        is_whole: Whether everything below it moves too. Otherwise only its own values move.
    """

    old: Path
    new: Path | None
    is_whole: bool = True


def moves(targets: Mapping[Path, Path | None]) -> list[Move]:
    """Finds the fewest moves that give every value its new path.

    Args:
        targets: By path of each value, its new path, or None if it is left out. Paths that do not change are given too.

    Example:
        >>> moves({("net", "w"): ("model", "w"), ("net", "b"): ("model", "b"), ("step",): ("step",)})
        [Move(old=('net',), new=('model',), is_whole=True)]
    """
    together: dict[Path, object] = dict(targets)
    depths: dict[int, set[Path]] = {}
    for path in targets:
        depths.setdefault(len(path), set()).add(path)
    all_moves: list[Move] = []
    for depth in range(max(depths, default=0), 0, -1):
        below: dict[Path, list[Path]] = {}
        for path in sorted(depths.get(depth, ())):
            below.setdefault(path[:-1], []).append(path)
        for parent, children in below.items():
            wanted = {_lifted(together[child], child[-1]) for child in children}
            if parent in targets:
                wanted.add(targets[parent])
            whole = wanted.pop() if len(wanted) == 1 else _MIXED
            if whole is _MIXED or (whole == ()) != (not parent):  # nothing but the root can be at the root
                all_moves += [
                    Move(child, each)  # type: ignore[arg-type]
                    for child in children
                    if (each := together[child]) not in (child, _MIXED)
                ]
                if parent in targets and targets[parent] != parent:
                    all_moves.append(Move(parent, targets[parent], is_whole=False))
                whole = _MIXED
            together[parent] = whole
            depths.setdefault(depth - 1, set()).add(parent)
    return sorted(all_moves, key=lambda move: (len(move.new or ()), move))


def _lifted(target: object, name: str) -> object:
    """The new path of a parent with which a child of this name would reach its target, or `_MIXED` if there is none."""
    if target is None or target is _MIXED:
        return target
    assert isinstance(target, tuple), "a path"
    return target[:-1] if target and target[-1] == name else _MIXED


def renamed(
    graph: ObjectGraph, rename: Rename, *, others: bool = True, added: Sequence[tuple[int, Path]] = ()
) -> tuple[ObjectGraph, list[str]]:
    """An object graph with other names.

    A value is known by the first path to its object, as in the keys of a checkpoint: ``model/layers/0/kernel``. The other names of an object,
    as a tied weight has, are renamed too. Slot variables have no names of their own: they follow their variable and their optimizer.

    Args:
        graph: The saved graph.
        rename: The new name of each saved value.
        others: Whether it gives new names to the other paths of objects as well. A program's function does not know these.
        added: Nodes of the graph to which nothing leads, each with the path that it gets.

    Returns:
        The graph, and the keys of the values that are left out.

    Raises:
        UnsupportedError: Two values would have the same name.
    """
    return _Renaming(graph, rename, others, added).run()


def same_name(key: str, other: str | None = None) -> UnsupportedError:
    """The error for two saved values that would get one name, or for one value with the new name of another."""
    return UnsupportedError(
        "two saved values would have the same name",
        key=key,
        found=None if other is None else f"the same new name as {other}",
        remedy="give one of them another name in rename, or leave one of them out with ignore",
    )


class _Renaming:
    def __init__(self, graph: ObjectGraph, rename: Rename, others: bool, added: Sequence[tuple[int, Path]]) -> None:
        self._rename = rename
        self._others = others
        self._added = added
        self._nodes: list[Node] = list(graph.nodes)
        self._paths = dict(first_paths(graph))
        self._children: dict[int, dict[str, int]] = {}
        self._merged: dict[int, int] = {}
        self._left_out: list[str] = []

    def run(self) -> tuple[ObjectGraph, list[str]]:
        targets: dict[Path, Path | None] = {}
        numbers = {path: number for number, path in self._paths.items()}
        for number, path in self._paths.items():
            if path and self._nodes[number].values:
                targets[path] = self._target(path)
                if targets[path] is None:
                    self._drop(number)
        if self._others:
            for path, number in self._other_paths():
                numbers[path], targets[path] = number, self._target(path)
        attached = list(self._added)
        left_out = {path: path if target else None for path, target in targets.items()}
        all_moves = moves(left_out) if None in left_out.values() else []
        all_moves += moves({path: target for path, target in targets.items() if target is not None})
        for move in all_moves:
            number = numbers[move.old]
            if not move.is_whole:
                values = self._nodes[number].values
                self._nodes[number] = self._nodes[number]._replace(values=())
                self._nodes.append(Node(values=values))
                number = len(self._nodes) - 1
            else:
                self._edges(numbers[move.old[:-1]]).pop(move.old[-1], None)
            if move.new is not None:
                attached.append((number, move.new))
        for number, path in attached:
            self._attach(number, path)
        for move in all_moves:
            self._drop_empty(move.old[:-1], numbers)
        self._drop_slots({move.old for move in all_moves if move.new is None and move.is_whole})
        self._move_hints()
        return self._graph(), sorted(self._left_out)

    def _other_paths(self) -> Iterator[tuple[Path, int]]:
        """The paths of edges to objects that are reached on a shorter path, each with the number of the object."""
        for number, path in self._paths.items():
            for name, child in self._nodes[number].children:
                if self._paths[child] != (*path, name):
                    yield (*path, name), child

    def _target(self, path: Path) -> Path | None:
        new = self._rename("/".join(map(escape, path)))
        return None if new is None else tuple(map(unescape, new.split("/")))

    def _drop(self, number: int) -> None:
        """Leaves out the values of a node, by whichever name they are found."""
        self._left_out += [value.key for value in self._nodes[number].values]
        self._nodes[number] = self._nodes[number]._replace(values=(), python="")

    def _drop_empty(self, path: Path, numbers: Mapping[Path, int]) -> None:
        """Removes a node that has lost everything below it, and those above it that have nothing else."""
        while path:
            number, above = numbers[path], numbers[path[:-1]]
            if self._edges(number) or self._nodes[number].values or self._nodes[number].slots:
                return
            if self._edges(above).get(path[-1]) == number:
                del self._edges(above)[path[-1]]
            path = path[:-1]

    def _move_hints(self) -> None:
        """Gives the hints of a node whose children have other names now, one by one, to the node that has them."""
        for number, path in self._paths.items():
            if self._nodes[number].hints and self._children.get(number) == {}:
                target = self._target(path)
                there: int | None = None if target is None else 0
                for name in target if target and target != ("",) else ():
                    there = None if there is None else self._edges(there).get(name)
                if there is not None and not self._nodes[there].hints:
                    self._nodes[there] = self._nodes[there]._replace(hints=self._nodes[number].hints)

    def _edges(self, number: int) -> dict[str, int]:
        """The children of a node, which the caller changes.

        A list or dict that has changed loses its type. If a restore knows the type, it assumes that no member is left out.
        """
        if number not in self._children:
            self._children[number] = {edge.name: edge.node for edge in self._nodes[number].children}
            if number:
                self._nodes[number] = self._nodes[number]._replace(python="")
        return self._children[number]

    def _attach(self, number: int, path: Path) -> None:
        at = 0
        for name in path[:-1]:
            edges = self._edges(at)
            if name not in edges:
                self._nodes.append(Node())
                edges[name] = len(self._nodes) - 1
            at = edges[name]
        self._put(at, path[-1], number)

    def _put(self, parent: int, name: str, number: int) -> None:
        """Adds an edge. If there is one of this name, its node and the new one become one."""
        pending = [(parent, name, number)]
        while pending:
            parent, name, number = pending.pop()
            edges = self._edges(parent)
            there = edges.setdefault(name, number)
            if there == number:
                continue
            new, old = self._nodes[number], self._nodes[there]
            if new.values and old.values:
                raise same_name(new.values[0].key, old.values[0].key)
            self._nodes[there] = old._replace(values=old.values or new.values, slots=(*old.slots, *new.slots))
            self._merged[number] = there
            pending += [(there, name, child) for name, child in self._edges(number).items()]

    def _drop_slots(self, left_out: Set[Path]) -> None:
        """Leaves out the slot variables of variables and optimizers that are left out."""
        gone = {
            number
            for number, path in self._paths.items()
            if any(path[:length] in left_out for length in range(1, len(path) + 1))
        }
        for number, node in enumerate(self._nodes):
            kept = tuple(slot for slot in node.slots if number not in gone and slot.variable not in gone)
            if len(kept) < len(node.slots):
                for slot in node.slots:
                    if slot not in kept and self._nodes[slot.slot].values:
                        self._drop(slot.slot)
                self._nodes[number] = self._nodes[number]._replace(slots=kept)

    def _graph(self) -> ObjectGraph:
        nodes = []
        for number, node in enumerate(self._nodes):
            changed = self._children.get(number)
            edges = node.children if changed is None else tuple(Edge(name, each) for name, each in changed.items())
            if self._merged:
                edges = tuple(Edge(edge.name, self._present(edge.node)) for edge in edges)
                node = node._replace(
                    slots=tuple(slot._replace(variable=self._present(slot.variable)) for slot in node.slots)
                )
            if number in self._merged:
                edges, node = (), Node()
            nodes.append(node._replace(children=edges) if edges is not node.children else node)
        return ObjectGraph(tuple(nodes))

    def _present(self, number: int) -> int:
        while number in self._merged:
            number = self._merged[number]
        return number


def first_paths(graph: ObjectGraph) -> Iterator[tuple[int, Path]]:
    """The shortest path to each node that the root leads to; of several, the first."""
    seen = {0}
    level: list[tuple[int, Path]] = [(0, ())]
    while level:
        yield from level
        below: list[tuple[int, Path]] = []
        for number, path in level:
            for edge in graph.nodes[number].children:
                if edge.node not in seen:
                    seen.add(edge.node)
                    below.append((edge.node, (*path, edge.name)))
        level = below
