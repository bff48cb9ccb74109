"""Decodes the nodes of a serialized object graph, whose grammar is in `milepost.graph.saved.object_graph`.

Nodes that differ only in a key are found together, and all edges are decoded at once. What does not have the usual form is parsed node by
node.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from milepost.coding import varint, varints
from milepost.coding.fields import message_field
from milepost.coding.protobuf import Field, declare, parse
from milepost.coding.varints import Column
from milepost.errors import CorruptCheckpointError
from milepost.graph.saved.nodes import (
    EdgeColumns,
    Edges,
    Node,
    NodeKind,
    Nodes,
    SavedValue,
    SlotReference,
    new_edge,
)

MESSAGES: Final = declare(
    "object_graph",
    {
        "ObjectReference": [Field("node_id", 1, "int32"), Field("local_name", 2, "string")],
        "SerializedTensor": [
            Field("name", 1, "string"),
            Field("full_name", 2, "string"),
            Field("checkpoint_key", 3, "string"),
        ],
        "SlotVariableReference": [
            Field("original_variable_node_id", 1, "int32"),
            Field("slot_name", 2, "string"),
            Field("slot_variable_node_id", 3, "int32"),
        ],
        "RegisteredSaver": [Field("name", 1, "string"), Field("object_name", 2, "string")],
        "BoolValue": [Field("value", 1, "bool")],
        "TrackableObject": [
            Field("children", 1, "ObjectReference", repeated=True),
            Field("attributes", 2, "SerializedTensor", repeated=True),
            Field("slot_variables", 3, "SlotVariableReference", repeated=True),
            Field("registered_saver", 4, "RegisteredSaver"),
            Field("has_checkpoint_values", 5, "BoolValue"),
            Field("skipped_by_tensorflow", 1001, "SerializedTensor", repeated=True),
            Field("python", 1002, "string"),
            Field("hints", 1003, "string"),
        ],
        "TrackableObjectGraph": [Field("nodes", 1, "TrackableObject", repeated=True)],
    },
)
NODE: Final = b"\x0a"
"""The tag of the fields of a TrackableObjectGraph."""
CHILD: Final = b"\x0a"
"""The tag of the first field of a TrackableObject."""
_TARGET, _NAME = 0x08, 0x12
"""The tags of the fields of an ObjectReference."""
_MOST_OF_SIZE: Final = 5
"""The bytes of the longest size of a field that the general parser accepts. Zero groups at its end count."""
_MOST_TARGET: Final = (1 << 31) - 1
_PADDING: Final = bytes(32)
"""Bytes after the last edge, so that a field that ends early is noticed only after it was decoded. A last node that is long and has no edges
is as good."""
_BYTES_TOGETHER: Final = 1 << 20
"""Bytes of nodes that are compared at once."""
_EDGES_TOGETHER: Final = 1 << 15
"""Edges that are decoded at once. Their columns stay in the cache of a processor."""
_MOST_EXAMPLES: Final = 16
"""The most nodes of one size with which all others of this size are compared."""
_FEW: Final = 4
"""Fewer nodes of one size are parsed faster one by one."""
_BARE: Final = Node()
"""The one object for all empty nodes, so that many of them take little memory."""


def decode_nodes(data: bytes) -> Nodes:
    """The nodes of a serialized graph.

    Raises:
        CorruptCheckpointError: The bytes are not a graph, or refer to nodes that do not exist.
    """
    starts, ends = array("q"), array("q")
    if _split(data, 0, len(data), NODE, starts, ends) != len(data):
        graph = parse(MESSAGES["TrackableObjectGraph"], data, what="the object graph")
        data = b"".join([message_field(NODE, node.SerializeToString()) for node in graph.nodes])
        starts, ends = array("q"), array("q")
        _split(data, 0, len(data), NODE, starts, ends)
    last = data[starts[-1] : ends[-1]] if starts else b""
    if len(last) < len(_PADDING) or last.startswith(CHILD):
        data += _PADDING
    decoder = _GraphDecoder(data, starts, ends)
    decoder.decode_inner()
    decoder.decode_leaves()
    decoder.check_references()
    return decoder.nodes()


def key_position(serialized: bytes, node: Node) -> int | None:
    """Where the key of a node's one value is in the serialized node. None if it has another form, or if that cannot be told.

    If other text of the same size takes the place of the key, all other fields keep their meaning.
    """
    if len(node.values) != 1 or node.values[0].full_name or node.children or node.slots or node.saver:
        return None
    key = node.values[0].key.encode()
    start = serialized.find(key)
    return start if key and start == serialized.rfind(key) else None


def _split(data: bytes, position: int, end: int, tag: bytes, starts: array[int], ends: array[int]) -> int:
    """Splits a run of fields with the same tag, which are messages.

    Args:
        data: What they are in. Bytes follow the end, unless the last field ends there.
        position: Where the first begins.
        end: Where they end at the latest.
        tag: Their tag, of one byte.
        starts: Gets the position where the content of each begins.
        ends: Gets the position where it ends.

    Returns:
        The position after the last of them; -1 if one has not the form of a field.
    """
    first = tag[0]
    try:
        while position < end and data[position] == first:
            size, start = data[position + 1], position + 2
            if size >= 0x80:
                size, start = varint.decode(data, position + 1)
                if start > position + 1 + _MOST_OF_SIZE:
                    return -1
            position = start + size
            starts.append(start)
            ends.append(position)
    except (IndexError, CorruptCheckpointError):
        return -1
    return position if position <= end else -1


class _GraphDecoder:
    """Decodes the nodes of one graph.

    Args:
        data: The graph, with at least as many bytes after the last edge as `_PADDING` has.
        starts: Where each node begins.
        ends: Where it ends.
    """

    def __init__(self, data: bytes, starts: array[int], ends: array[int]) -> None:
        self._data = data
        self._text: Any = np.frombuffer(data, np.uint8)
        self._starts: Column = np.asarray(starts)
        self._ends: Column = np.asarray(ends)
        self._has_children = (self._starts < self._ends) & (self._text[self._starts] == CHILD[0])
        self._most_target = 0
        self._kinds: list[NodeKind] = []
        self._kind = np.full(len(starts), -1, np.int32)
        self._others: dict[int, Node] = {}

    def nodes(self) -> Nodes:
        """All nodes, when all have been decoded."""
        others = dict(sorted(self._others.items()))
        kind = array("i", self._kind.tobytes())
        return Nodes(self._data, self._kinds, kind, _positions(self._starts, len(self._data)), others)

    def decode_inner(self) -> None:
        """Decodes the nodes that begin with an edge."""
        data = self._data
        starts, ends, first = array("q"), array("q"), array("q", [0])
        numbers = np.flatnonzero(self._has_children)
        rest = array("q")
        for start, end in zip(self._starts[numbers].tolist(), self._ends[numbers].tolist(), strict=True):
            rest.append(_split(data, start, end, CHILD, starts, ends))
            first.append(len(starts))
        columns, unusual = self._edges(starts, ends)
        is_usual = np.asarray(rest) >= 0
        is_usual[np.searchsorted(np.asarray(first), unusual, side="right") - 1] = False
        alike: dict[bytes, Node] = {}
        for index, number in enumerate(numbers.tolist()):
            node = None
            if is_usual[index]:
                after = data[rest[index] : self._ends[number]]
                node = alike.get(after)
                if node is None:
                    node = _decoded(after)
                    if not (node.values or node.slots):
                        alike[after] = node
            if node is None or node.children:
                self._others[number] = _decoded(self._serialized(number))
            else:
                self._others[number] = node._replace(children=Edges(columns, first[index], first[index + 1]))

    def _edges(self, starts: array[int], ends: array[int]) -> tuple[EdgeColumns, Sequence[int]]:
        """Decodes edges.

        Args:
            starts: Where the content of each begins.
            ends: Where it ends.

        Returns:
            Their columns, and the positions of those that do not have the usual form, whose columns have no meaning.
        """
        names, targets, unusual = array("q"), array("i"), array("q")
        for first in range(0, len(starts), _EDGES_TOGETHER):
            batch = slice(first, first + _EDGES_TOGETHER)
            start, end = np.asarray(starts[batch]), np.asarray(ends[batch])
            is_there = (start < end) & (self._text[start] == _TARGET)
            target, position, fits = varints.decode_all(self._text, start + is_there, is_there)
            is_there = (position < end) & (self._text[position] == _NAME)
            size, name, is_whole = varints.decode_all(self._text, position + is_there, is_there)
            fits &= (target <= _MOST_TARGET) & is_whole & (name <= position + 1 + _MOST_OF_SIZE) & (name + size == end)
            fits &= self._are_text(name, np.where(fits, end, name))
            unusual.extend((np.flatnonzero(~fits) + first).tolist())
            names.frombytes(name.tobytes())
            self._most_target = max(self._most_target, int(target.max(where=fits, initial=0)))
            targets.frombytes(np.where(fits, target, 0).astype(np.int32).tobytes())
        most = len(self._data)
        columns = EdgeColumns(
            self._data, _positions(np.asarray(names), most), _positions(np.asarray(ends), most), targets
        )
        return columns, unusual

    def _are_text(self, starts: Column, ends: Column) -> Any:
        """Whether each of some ranges of bytes, which are in order, is UTF-8."""
        are_text = np.ones(len(starts), bool)
        begin = int(starts[0])
        high = np.flatnonzero(self._text[begin : int(ends.max())] >= 0x80) + begin
        for index in np.flatnonzero(np.searchsorted(high, starts) < np.searchsorted(high, ends)).tolist():
            are_text[index] = self._is_text(int(starts[index]), int(ends[index]))
        return are_text

    def _is_text(self, start: int, end: int) -> bool:
        try:
            self._data[start:end].decode()
        except UnicodeDecodeError:
            return False
        return True

    def decode_leaves(self) -> None:
        """Decodes the nodes that begin with no edge."""
        leaves = np.flatnonzero(~self._has_children)
        sizes = (self._ends - self._starts)[leaves]
        order = np.argsort(sizes, kind="stable")
        for numbers in np.split(leaves[order], np.flatnonzero(np.diff(sizes[order])) + 1):
            self._decode_leaves_of_one_size(numbers)

    def _decode_leaves_of_one_size(self, numbers: Any) -> None:
        for _ in range(_MOST_EXAMPLES):
            if len(numbers) < _FEW:
                break
            number = int(numbers[0])
            serialized = self._serialized(number)
            node = _decoded(serialized)
            start = key_position(serialized, node)
            if start is None and (node.children or node.values or node.slots or node.saver):
                self._others[number] = node
                numbers = numbers[1:]
                continue
            size = 0 if start is None else len(node.values[0].key.encode())
            is_like = self._are_like(numbers, serialized, len(serialized) if start is None else start, size)
            self._kind[numbers[is_like]] = len(self._kinds)
            self._kinds.append(NodeKind(node, start or 0, size))
            numbers = numbers[~is_like]
        for number in numbers.tolist():
            self._others[number] = _decoded(self._serialized(number))

    def _are_like(self, numbers: Any, serialized: bytes, before: int, size: int) -> Any:
        """Which nodes, of the size of a serialized one, differ from it only in the text of the key.

        Args:
            numbers: The nodes.
            serialized: The serialized node.
            before: The bytes in it before the key.
            size: The bytes of the key.
        """
        example, after = np.frombuffer(serialized, np.uint8), before + size
        windows = np.ndarray((len(self._text) - len(example) + 1, len(example)), np.uint8, self._data, 0, (1, 1))
        are_like = np.zeros(len(numbers), bool)
        together = max(1, _BYTES_TOGETHER // max(1, len(example)))
        for first in range(0, len(numbers), together):
            batch = slice(first, first + together)
            starts = self._starts[numbers[batch]]
            rows = windows[starts]
            is_like = (rows[:, :before] == example[:before]).all(1) & (rows[:, after:] == example[after:]).all(1)
            for index in np.flatnonzero(is_like & (rows[:, before:after] >= 0x80).any(1)).tolist():
                is_like[index] = self._is_text(int(starts[index]) + before, int(starts[index]) + after)
            are_like[batch] = is_like
        return are_like

    def _serialized(self, number: int) -> bytes:
        return self._data[int(self._starts[number]) : int(self._ends[number])]

    def check_references(self) -> None:
        """Checks that all edges and slot variables lead to nodes."""
        count = len(self._starts)
        for number, node in sorted(self._others.items()):
            if self._most_target >= count or not isinstance(node.children, Edges):
                for _, child in node.children:
                    if not 0 <= child < count:
                        raise _dangling(number, child, count)
            for reference in node.slots:
                if not (0 <= reference.variable < count and 0 <= reference.slot < count):
                    raise _dangling(number, reference, count)


def _dangling(number: int, target: object, count: int) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"node {number} of the object graph refers to a node that does not exist",
        expected=f"nodes 0 to {count - 1}",
        found=target,
    )


def _positions(column: Column, most: int) -> array[int]:
    """Positions up to the given one, in as few bytes as they need."""
    code = "I" if most < 1 << 32 else "Q"
    return array(code, column.astype(np.dtype(code)).tobytes())


def _decoded(serialized: bytes) -> Node:
    """The node that these bytes mean.

    Raises:
        CorruptCheckpointError: The bytes are not a node.
    """
    saved = parse(MESSAGES["TrackableObject"], serialized, what="a node of the object graph")
    children, slots, python, hints = saved.children, saved.slot_variables, saved.python, saved.hints
    values = [SavedValue(v.name, v.full_name, v.checkpoint_key) for v in saved.attributes]
    values += [SavedValue(v.name, v.full_name, v.checkpoint_key, True) for v in saved.skipped_by_tensorflow]
    saver = saved.registered_saver.name if saved.HasField("registered_saver") else ""
    if not (children or values or slots or python or hints or saved.HasField("registered_saver")):
        return _BARE
    return Node(
        tuple([new_edge((edge.local_name, edge.node_id)) for edge in children]),
        tuple(values),
        tuple([SlotReference(s.original_variable_node_id, s.slot_name, s.slot_variable_node_id) for s in slots]),
        saver,
        python,
        hints,
    )
