"""The nodes of an object graph: as plain data, and in columns.

There may be millions of nodes, most of which have one value and nothing else. As objects of Python they take ten times as much memory as in
the file. So the nodes of a file stay in its bytes (`Nodes`), and so do their edges (`Edges`). A `Node` or an `Edge` is made when it is
asked for.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import eq
from typing import Any, Final, NamedTuple, TypeVar, overload

_Fact = TypeVar("_Fact")


class Edge(NamedTuple):
    """A named edge to a child node."""

    name: str
    node: int


class SavedValue(NamedTuple):
    """One tensor of a node.

    Attributes:
        name: Its local name.
        full_name: The name of the variable itself, if it has one.
        key: Its key in the files.
        skipped_by_tensorflow: Whether it is in the field that TensorFlow skips.
    """

    name: str
    full_name: str
    key: str
    skipped_by_tensorflow: bool = False


class SlotReference(NamedTuple):
    """A slot variable in the list of its optimizer: the ids of the variable and of the slot, and the name of the slot."""

    variable: int
    name: str
    slot: int


class Node(NamedTuple):
    """One saved object.

    Attributes:
        children: Its named edges, in the object's own order.
        values: Its tensors.
        slots: Its slot variables, if it is an optimizer.
        saver: The name of the custom saver that wrote it, or None. milepost supports no custom savers.
        python: The name of its type, if it is a plain value, an array that a restore can make, a list, dict or tuple of only
            these, or a `Checkpoint`.
        hints: What a restore needs besides its tensors to make it again, such as their strides, as JSON; see `milepost.graph.saved.hints`.
    """

    children: Sequence[Edge] = ()
    values: tuple[SavedValue, ...] = ()
    slots: tuple[SlotReference, ...] = ()
    saver: str = ""
    python: str = ""
    hints: str = ""


new_edge: Final = partial(tuple.__new__, Edge)
new_value: Final = partial(tuple.__new__, SavedValue)
new_node: Final = partial(tuple.__new__, Node)
"""Each makes an object from a tuple of all attributes. Calling the class takes twice as long, since that runs code in Python."""

_EMPTY: Final[tuple[Any, ...]] = ()


class _Column(Sequence[Any]):
    """A sequence that is equal to a tuple with the same members."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Column | tuple):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class EdgeColumns(NamedTuple):
    """The edges of many nodes.

    Attributes:
        data: The bytes that have their names.
        starts: Where each name begins.
        ends: Where it ends.
        targets: The node that each edge leads to.
    """

    data: bytes
    starts: array[int]
    ends: array[int]
    targets: array[int]


class Edges(_Column, Sequence[Edge]):
    """The edges of one node in columns.

    Attributes:
        columns: The edges of all nodes.
        first: The first edge of this one.
        stop: The end of the last.
    """

    __slots__ = ("columns", "first", "stop")

    def __init__(self, columns: EdgeColumns, first: int, stop: int) -> None:
        self.columns = columns
        self.first = first
        self.stop = stop

    def __len__(self) -> int:
        return self.stop - self.first

    def __iter__(self) -> Iterator[Edge]:
        data, *columns = self.columns
        selected = slice(self.first, self.stop)
        rows = zip(*(column[selected] for column in columns), strict=True)
        return (new_edge((data[start:end].decode(), target)) for start, end, target in rows)

    @overload
    def __getitem__(self, index: int) -> Edge: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Edge, ...]: ...
    def __getitem__(self, index: int | slice) -> Edge | tuple[Edge, ...]:
        data, starts, ends, targets = self.columns
        selected = range(self.first, self.stop)[index]
        if isinstance(selected, range):
            return tuple([Edge(data[starts[each] : ends[each]].decode(), targets[each]) for each in selected])
        return Edge(data[starts[selected] : ends[selected]].decode(), targets[selected])


class NodeKind(NamedTuple):
    """Nodes without children that differ in nothing but the key of their one value, all keys having so many bytes.

    Attributes:
        node: One of them. If they have no value, all are this one.
        before: The bytes of a node before the key.
        size: The bytes of the key.
    """

    node: Node
    before: int = 0
    size: int = 0


class Nodes(_Column, Sequence[Node]):
    """The nodes of a serialized graph.

    Args:
        data: The graph.
        kinds: As the attribute.
        kind: As the attribute.
        starts: Where each node begins.
        others: As the attribute.

    Attributes:
        kinds: The kinds of nodes that occur often.
        kind: The kind of each node, as a position in ``kinds``. It is -1 for a node of another kind.
        others: The nodes of other kinds, by number and in the order of the numbers. They are all that have children, slot variables or
            a custom saver.
    """

    __slots__ = ("_data", "_starts", "kind", "kinds", "others")

    def __init__(
        self, data: bytes, kinds: Sequence[NodeKind], kind: array[int], starts: array[int], others: Mapping[int, Node]
    ) -> None:
        self._data = data
        self.kinds = kinds
        self.kind = kind
        self._starts = starts
        self.others = others

    def __len__(self) -> int:
        return len(self.kind)

    def __iter__(self) -> Iterator[Node]:
        return map(self.__getitem__, range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Node: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Node, ...]: ...
    def __getitem__(self, index: int | slice) -> Node | tuple[Node, ...]:
        if isinstance(index, slice):
            return tuple([self[number] for number in range(len(self))[index]])
        kind = self.kind[index]
        if kind < 0:
            return self.others[index if index >= 0 else index + len(self)]
        node, before, size = self.kinds[kind]
        if not size:
            return node
        start = self._starts[index] + before
        _, ((name, full_name, _, skipped),), _, _, python, hints = node
        key = self._data[start : start + size].decode()
        return new_node((_EMPTY, (new_value((name, full_name, key, skipped)),), _EMPTY, "", python, hints))


def of_each(nodes: Sequence[Node], function: Callable[[Node], _Fact]) -> list[_Fact]:
    """What a function returns for each node.

    Args:
        nodes: The nodes.
        function: A function that does not look at the keys of values. So if nodes differ only in these, it is called for one of them.
    """
    if not isinstance(nodes, Nodes):
        return [function(node) for node in nodes]
    by_kind = [*(function(kind.node) for kind in nodes.kinds), None]  # the last is for -1
    facts: list[Any] = [by_kind[kind] for kind in nodes.kind]
    for number, node in nodes.others.items():
        facts[number] = function(node)
    return facts


def targets(children: Sequence[Edge]) -> Sequence[int]:
    """The nodes that some edges lead to."""
    if isinstance(children, Edges):
        return children.columns.targets[children.first : children.stop]
    return [edge.node for edge in children]
