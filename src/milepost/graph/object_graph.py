"""The object graph of a checkpoint: plain frozen data, and its serialized form.

::

    TrackableObjectGraph  := {1 nodes TrackableObject}                   node 0 is the root
    TrackableObject       := {1 children ObjectReference}  {2 attributes SerializedTensor}
                             {3 slot_variables SlotVariableReference}  (4 registered_saver RegisteredSaver)?
                             5 has_checkpoint_values BoolValue
                             {1001 skipped_by_tensorflow SerializedTensor}  (1002 python string)?
    ObjectReference       := 1 node_id int32  2 local_name string
    SerializedTensor      := 1 name string  2 full_name string  3 checkpoint_key string
    SlotVariableReference := 1 original_variable_node_id int32  2 slot_name string  3 slot_variable_node_id int32
    RegisteredSaver       := 1 name string  2 object_name string
    BoolValue             := 1 value bool

The fields 1001 and 1002 are milepost's own. TensorFlow skips fields that it does not know, so its ``assert_consumed`` does not
ask for objects that take their values.

- ``skipped_by_tensorflow`` is a list of SerializedTensor: the values of objects that TensorFlow does not save, such as the seeds
  of Keras 3.
- ``python`` is the name of a type. It is set for a plain value (`milepost.graph.plain.values`), for an array that a restore can
  make, and for a list, dict or tuple of only these: ``int``, ``torch.Tensor``, ``list``, ``namedtuple:module:Class``. A
  `Checkpoint` has the name ``Checkpoint``, which says that its writer saves plain values.

Source of the rest: TensorFlow 2.21, ``tensorflow/core/protobuf/trackable_object_graph.proto``.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.coding import varint
from milepost.coding.fields import message_field, number_field, number_fields, text_field
from milepost.coding.protobuf import Field, declare, parse
from milepost.errors import CorruptCheckpointError, UntrackableError

_MESSAGES: Final = declare(
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
        ],
        "TrackableObjectGraph": [Field("nodes", 1, "TrackableObject", repeated=True)],
    },
)


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
    """

    children: tuple[Edge, ...] = ()
    values: tuple[SavedValue, ...] = ()
    slots: tuple[SlotReference, ...] = ()
    saver: str = ""
    python: str = ""


new_edge: Final = partial(tuple.__new__, Edge)
new_value: Final = partial(tuple.__new__, SavedValue)
new_node: Final = partial(tuple.__new__, Node)
"""They make the same of a tuple with all attributes. The classes themselves are functions in Python, which take twice as long."""

_EMPTY: Final[tuple[Any, ...]] = ()
_NONE: Final = type(None).__name__
"""The name of the type of None."""
_BARE: Final = Node()
"""The one object for all empty nodes, so that many of them take little memory."""


@dataclass(frozen=True, slots=True)
class ObjectGraph:
    """A whole saved object graph. The id of a node is its position.

    Attributes:
        nodes: All nodes. Number 0 is the root.
    """

    nodes: tuple[Node, ...]

    def serialize(self) -> bytes:
        """The bytes that TensorFlow would write for this graph.

        Raises:
            UntrackableError: A name is not valid Unicode, so a file cannot hold it.
        """
        try:
            ids = number_fields(b"\x08", np.arange(len(self.nodes)))
            data = io.BytesIO()  # in which the parts of very many nodes take no memory beside the whole
            data.writelines(map(_encoded, self.nodes, self.nodes_with_values(), itertools.repeat(ids)))
            return data.getvalue()
        except UnicodeEncodeError as error:
            raise UntrackableError(
                "a name in the object graph is not valid Unicode", found=ascii(error.object), expected="UTF-8"
            ) from None

    @classmethod
    def deserialize(cls, data: bytes) -> ObjectGraph:
        """Reads a serialized graph.

        Raises:
            CorruptCheckpointError: The bytes are not a graph, or refer to nodes that do not exist.
        """
        nodes: list[Node] = []
        leaves: dict[int, _Leaf] = {}
        for serialized in _split(data):
            leaf = leaves.get(len(serialized))
            node = None if leaf is None else leaf.like(serialized)
            if node is None:
                node = _decoded(serialized)
                if (leaf := _leaf(serialized, node)) is not None:
                    leaves[len(serialized)] = leaf
            nodes.append(node)
        if not nodes:
            raise CorruptCheckpointError(
                "the object graph is empty", expected="at least the root's node", found="0 nodes"
            )
        _check_references(nodes)
        return cls(tuple(nodes))

    def writer_saves(self) -> tuple[bool, bool]:
        """Whether the writer saves values that TensorFlow skips, and whether it saves plain values."""
        skipped = any(value.skipped_by_tensorflow for node in self.nodes for value in node.values)
        return skipped, any(node.python for node in self.nodes)

    def nones(self) -> frozenset[str]:
        """The keys of the tensors that stand for None."""
        return frozenset(value.key for node in self.nodes if node.python == _NONE for value in node.values)

    def nodes_with_values(self) -> list[bool]:
        """For each node, whether it has values, or a node that can be reached from it has.

        This is computed rather than read from the file. Files from before TensorFlow 2.9 lack the field, and a wrong field would
        hide values.
        """
        holds = [bool(values or slots or saver) for _, values, slots, saver, _ in self.nodes]
        others = [number for number, has_own in enumerate(holds) if not has_own]
        # Most children have a higher number than their parents, so one pass backwards finds almost all.
        for number in reversed(others):
            for _, child in self.nodes[number].children:
                if holds[child]:
                    holds[number] = True
                    break
        parents: dict[int, list[int]] = {}
        for number in others:
            if not holds[number]:
                for _, child in self.nodes[number].children:
                    parents.setdefault(child, []).append(number)
        reached = [number for number in parents if holds[number]]
        for number in reached:
            for parent in parents.get(number, ()):
                if not holds[parent]:
                    holds[parent] = True
                    reached.append(parent)
        return holds


def _check_references(nodes: Sequence[Node]) -> None:
    count = len(nodes)
    for number, (children, _, slots, _, _) in enumerate(nodes):
        for _, child in children:
            if not 0 <= child < count:
                raise _dangling(number, child, count)
        for reference in slots:
            if not (0 <= reference.variable < count and 0 <= reference.slot < count):
                raise _dangling(number, reference, count)


def _dangling(number: int, target: object, count: int) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"node {number} of the object graph refers to a node that does not exist",
        expected=f"nodes 0 to {count - 1}",
        found=target,
    )


_NODE: Final = b"\x0a"
_MOST_OF_SIZE: Final = 5
"""The bytes of the longest size of a field that the general parser accepts. Zero groups at its end count."""
_CHILD, _ATTRIBUTE, _SLOT, _SAVER, _HAS_VALUES = b"\x0a", b"\x12", b"\x1a", b"\x22", b"\x2a"
_SKIPPED, _PYTHON = b"\xca\x3e", b"\xd2\x3e"
"""The tags of the fields of a TrackableObject."""
_NO_VALUES: Final = message_field(_HAS_VALUES, b"")
_VALUES: Final = message_field(_HAS_VALUES, number_field(b"\x08", 1))


def _encoded(node: Node, has_values: bool, ids: Sequence[bytes]) -> bytes:
    """A node as a field of the graph.

    Args:
        node: The node.
        has_values: Whether it has values, or a node below it has.
        ids: The number of each node as a field of an ObjectReference.
    """
    children, values, slots, saver, python = node
    if len(values) == 1 and not (children or slots or saver):
        ((name, full_name, key, is_skipped),) = values
        encoded = key.encode()
        around = None if full_name else _around_key(len(encoded), name, is_skipped, python)
        if around is not None:
            return around.before + encoded + around.after
    return _joined_fields(node, has_values, ids)


@lru_cache(maxsize=4096)
def _around_key(size: int, name: str, is_skipped: bool, python: str) -> _Leaf | None:
    """What all nodes with one value and no children have in common whose keys have so many bytes, if the value has this name."""
    value = SavedValue(name, "", "\0" * size, is_skipped)
    node = Node(values=(value,), python=python)
    return _leaf(_joined_fields(node, has_values=True, ids=()), node)


def _joined_fields(node: Node, has_values: bool, ids: Sequence[bytes]) -> bytes:
    children, values, slots, saver, python = node
    fields, skipped = bytearray(), bytearray()
    # calls would cost half of the time, since there is at least one edge for each node
    size = varint.encoded
    for name, child in children:
        encoded = name.encode()
        edge = ids[child] + b"\x12" + size[len(encoded)] + encoded if name else ids[child]
        fields += _CHILD + size[len(edge)] + edge
    for name, full_name, key, is_skipped in values:
        tensor = text_field(b"\x0a", name) + text_field(b"\x12", full_name) + text_field(b"\x1a", key)
        if is_skipped:
            skipped += message_field(_SKIPPED, tensor)
        else:
            fields += message_field(_ATTRIBUTE, tensor)
    for variable, name, slot in slots:
        reference = number_field(b"\x08", variable) + text_field(b"\x12", name) + number_field(b"\x18", slot)
        fields += message_field(_SLOT, reference)
    if saver:
        fields += message_field(_SAVER, text_field(b"\x0a", saver))
    fields += _VALUES if has_values else _NO_VALUES
    return message_field(_NODE, bytes(fields + skipped + text_field(_PYTHON, python)))


class _Leaf(NamedTuple):
    """A serialized node with one value and no children, for nodes that differ from it only in the key of their value.

    If other text of the same size takes the place of the key, all other fields keep their meaning.

    Attributes:
        before: The bytes before the key.
        after: The bytes after it.
        value: The value.
        python: As for `Node`.
    """

    before: bytes
    after: bytes
    value: SavedValue
    python: str

    def like(self, serialized: bytes) -> Node | None:
        """The node that these bytes mean, which are as many as those of this one. None if they differ in more than the key."""
        before, after, (name, full_name, _, skipped), python = self
        if not (serialized.startswith(before) and serialized.endswith(after)):
            return None
        try:
            key = serialized[len(before) : len(serialized) - len(after)].decode()
        except UnicodeDecodeError:
            return None
        return new_node((_EMPTY, (new_value((name, full_name, key, skipped)),), _EMPTY, "", python))


def _leaf(serialized: bytes, node: Node) -> _Leaf | None:
    if len(node.values) != 1 or node.values[0].full_name or node.children or node.slots or node.saver:
        return None
    key = node.values[0].key.encode()
    start = serialized.find(key)
    if not key or start != serialized.rfind(key):
        return None  # it cannot be told which of these bytes are the key
    return _Leaf(serialized[:start], serialized[start + len(key) :], node.values[0], node.python)


def _split(data: bytes) -> list[bytes]:
    """The serialized nodes of a graph.

    Raises:
        CorruptCheckpointError: The bytes are not a graph.
    """
    found = []
    position, end = 0, len(data)
    with suppress(IndexError, CorruptCheckpointError):
        while position < end and data[position] == _NODE[0]:
            size, start = data[position + 1], position + 2
            if size >= 0x80:
                size, start = varint.decode(data, position + 1)
                if start > position + 1 + _MOST_OF_SIZE:
                    break  # the parser says what is wrong
            position = start + size
            found.append(data[start:position])
    if position == end:
        return found
    graph = parse(_MESSAGES["TrackableObjectGraph"], data, what="the object graph")
    return [node.SerializeToString() for node in graph.nodes]


def _decoded(serialized: bytes) -> Node:
    """The node that these bytes mean.

    Raises:
        CorruptCheckpointError: The bytes are not a node.
    """
    saved = parse(_MESSAGES["TrackableObject"], serialized, what="a node of the object graph")
    children, slots, python = saved.children, saved.slot_variables, saved.python
    values = [SavedValue(v.name, v.full_name, v.checkpoint_key) for v in saved.attributes]
    values += [SavedValue(v.name, v.full_name, v.checkpoint_key, True) for v in saved.skipped_by_tensorflow]
    saver = saved.registered_saver.name if saved.HasField("registered_saver") else ""
    if not (children or values or slots or python or saved.HasField("registered_saver")):
        return _BARE
    return Node(
        tuple([new_edge((edge.local_name, edge.node_id)) for edge in children]) if children else _EMPTY,
        tuple(values) if values else _EMPTY,
        tuple([SlotReference(s.original_variable_node_id, s.slot_name, s.slot_variable_node_id) for s in slots])
        if slots
        else _EMPTY,
        saver,
        python,
    )
