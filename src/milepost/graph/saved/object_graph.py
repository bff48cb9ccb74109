"""The object graph of a checkpoint: plain frozen data, and its serialized form.

::

    TrackableObjectGraph  := {1 nodes TrackableObject}                   node 0 is the root
    TrackableObject       := {1 children ObjectReference}  {2 attributes SerializedTensor}
                             {3 slot_variables SlotVariableReference}  (4 registered_saver RegisteredSaver)?
                             5 has_checkpoint_values BoolValue
                             {1001 skipped_by_tensorflow SerializedTensor}  (1002 python string)?
                             (1003 hints string)?
    ObjectReference       := 1 node_id int32  2 local_name string
    SerializedTensor      := 1 name string  2 full_name string  3 checkpoint_key string
    SlotVariableReference := 1 original_variable_node_id int32  2 slot_name string  3 slot_variable_node_id int32
    RegisteredSaver       := 1 name string  2 object_name string
    BoolValue             := 1 value bool

The fields 1001 to 1003 are milepost's own. TensorFlow skips fields that it does not know, so its ``assert_consumed`` does not
ask for objects that take their values.

- ``skipped_by_tensorflow`` is a list of SerializedTensor: the values of objects that TensorFlow does not save, such as the seeds
  of Keras 3.
- ``python`` is the name of a type. It is set for a plain value (`milepost.graph.plain.values`), for an array that a restore can
  make, and for a list, dict or tuple of only these: ``int``, ``torch.Tensor``, ``list``, ``namedtuple:module:Class``. A
  `Checkpoint` has the name ``Checkpoint``, which says that its writer saves plain values.

- ``hints`` says what a restore needs to make a tensor as it was, such as its strides. `milepost.graph.saved.hints` has its grammar.

Source of the rest: TensorFlow 2.21, ``tensorflow/core/protobuf/trackable_object_graph.proto``.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from milepost.coding import varint
from milepost.coding.fields import message_field, number_field, number_fields, text_field
from milepost.errors import CorruptCheckpointError, UntrackableError
from milepost.graph.keys import escape
from milepost.graph.saved.decoding import CHILD as _CHILD
from milepost.graph.saved.decoding import NODE as _NODE
from milepost.graph.saved.decoding import decode_nodes, key_position
from milepost.graph.saved.nodes import Edge as Edge
from milepost.graph.saved.nodes import Edges, Nodes, of_each, targets
from milepost.graph.saved.nodes import Node as Node
from milepost.graph.saved.nodes import SavedValue as SavedValue
from milepost.graph.saved.nodes import SlotReference as SlotReference
from milepost.graph.saved.nodes import new_edge as new_edge
from milepost.graph.saved.nodes import new_node as new_node
from milepost.graph.saved.nodes import new_value as new_value

_NONE: Final = type(None).__name__
"""The name of the type of None."""
_EMPTY: Final = {"list": "[]", "dict": "{}", "tuple": "()"}
"""How containers without members are written, by the names of their types."""


@dataclass(frozen=True)
class ObjectGraph:
    """A whole saved object graph. The id of a node is its position.

    Attributes:
        nodes: All nodes. Number 0 is the root.
    """

    nodes: Sequence[Node]

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
        nodes = decode_nodes(data)
        if not nodes:
            raise CorruptCheckpointError(
                "the object graph is empty", expected="at least the root's node", found="0 nodes"
            )
        return cls(nodes)

    @cached_property
    def inner(self) -> list[tuple[int, Node]]:
        """The nodes with children, slot variables or a custom saver, each after its number."""
        numbered = self.nodes.others.items() if isinstance(self.nodes, Nodes) else enumerate(self.nodes)
        # `Edges` are never empty, and their length is a function in Python
        return [
            (number, node)
            for number, node in numbered
            if type(node.children) is Edges or node.children or node.slots or node.saver
        ]

    @cached_property
    def types(self) -> list[str]:
        """The name of the type of each node."""
        return of_each(self.nodes, lambda node: node.python)

    def holding(self, test: Callable[[SavedValue], bool]) -> list[int]:
        """The nodes with a value that passes a test, which does not look at the key."""
        passed = of_each(self.nodes, lambda node: any(map(test, node.values)))
        return [number for number, has_passed in enumerate(passed) if has_passed]

    def writer_saves(self) -> tuple[bool, bool]:
        """Whether the writer saves values that TensorFlow skips, and whether it saves plain values."""
        skipped = self.holding(lambda value: value.skipped_by_tensorflow)
        return bool(skipped), any(self.types)

    def nones(self) -> frozenset[str]:
        """The keys of the tensors that stand for None."""
        numbers = [number for number, kind in enumerate(self.types) if kind == _NONE]
        return frozenset(value.key for number in numbers for value in self.nodes[number].values)

    def empty_containers(self) -> dict[str, str]:
        """The lists, dicts and tuples without members, by the shortest path to each, as Python writes them."""
        containers = {}
        paths = {0: ""}
        pending = [0]
        for number in pending:
            node = self.nodes[number]
            if node.python in _EMPTY and not node.children and number:
                containers[paths[number]] = _EMPTY[node.python]
            for edge in node.children:
                if edge.node not in paths:
                    paths[edge.node] = f"{paths[number]}/{escape(edge.name)}" if number else escape(edge.name)
                    pending.append(edge.node)
        return containers

    def nodes_with_values(self) -> list[bool]:
        """For each node, whether it has values, or a node that can be reached from it has. A variable counts if it has a slot variable.

        This is computed rather than read from the file. Files from before TensorFlow 2.9 lack the field, and a wrong field would
        hide values.
        """
        holds = of_each(self.nodes, lambda node: bool(node.values or node.slots or node.saver))
        for _, node in self.inner:
            for slot in node.slots:
                holds[slot.variable] = True
        unknown = [(number, targets(node.children)) for number, node in self.inner if not holds[number]]
        # Most children have a higher number than their parents, so one pass backwards finds almost all.
        for number, below in reversed(unknown):
            holds[number] = any(map(holds.__getitem__, below))
        parents: dict[int, list[int]] = {}
        for number, below in unknown:
            if not holds[number]:
                for child in below:
                    parents.setdefault(child, []).append(number)
        reached = [number for number in parents if holds[number]]
        for number in reached:
            for parent in parents.get(number, ()):
                if not holds[parent]:
                    holds[parent] = True
                    reached.append(parent)
        return holds


_ATTRIBUTE, _SLOT, _SAVER, _HAS_VALUES = b"\x12", b"\x1a", b"\x22", b"\x2a"
_SKIPPED, _PYTHON, _HINTS = b"\xca\x3e", b"\xd2\x3e", b"\xda\x3e"
"""The tags of the other fields of a TrackableObject."""
_LONG: Final = 1 << 10
"""Longer keys have so many sizes that hardly two nodes have the same bytes around theirs."""
_NO_VALUES: Final = message_field(_HAS_VALUES, b"")
_VALUES: Final = message_field(_HAS_VALUES, number_field(b"\x08", 1))


def _encoded(node: Node, has_values: bool, ids: Sequence[bytes]) -> bytes:
    """A node as a field of the graph.

    Args:
        node: The node.
        has_values: Whether it has values, or a node below it has.
        ids: The number of each node as a field of an ObjectReference.
    """
    children, values, slots, saver, python, hints = node
    if len(values) == 1 and not (children or slots or saver or hints):
        ((name, full_name, key, is_skipped),) = values
        encoded = key.encode()
        around = None if full_name or len(encoded) > _LONG else _around_key(len(encoded), name, is_skipped, python)
        if around is not None:
            before, after = around
            return before + encoded + after
    return _joined_fields(node, has_values, ids)


@lru_cache(maxsize=4096)
def _around_key(size: int, name: str, is_skipped: bool, python: str) -> tuple[bytes, bytes] | None:
    """The bytes before and after the key of a node with one value of this name and no children, if the key has so many bytes."""
    value = SavedValue(name, "", "\0" * size, is_skipped)
    node = Node(values=(value,), python=python)
    serialized = _joined_fields(node, has_values=True, ids=())
    start = key_position(serialized, node)
    return None if start is None else (serialized[:start], serialized[start + size :])


def _joined_fields(node: Node, has_values: bool, ids: Sequence[bytes]) -> bytes:
    children, values, slots, saver, python, hints = node
    edges = bytearray()  # there may be very many, which would take more memory as parts
    # calls would cost half of the time, since there is at least one edge for each node
    size = varint.encoded
    for name, child in children:
        encoded = name.encode()
        edge = ids[child] + b"\x12" + size[len(encoded)] + encoded if name else ids[child]
        edges += _CHILD + size[len(edge)] + edge
    fields: list[bytes | bytearray] = [edges]  # joined once, since a key may be long
    skipped: list[bytes] = []
    for name, full_name, key, is_skipped in values:
        tensor, encoded = text_field(b"\x0a", name) + text_field(b"\x12", full_name), key.encode()
        if encoded:
            tensor += b"\x1a" + size[len(encoded)]
        parts = (_SKIPPED if is_skipped else _ATTRIBUTE) + size[len(tensor) + len(encoded)] + tensor, encoded
        if is_skipped:
            skipped += parts
        else:
            fields += parts
    for variable, name, slot in slots:
        reference = number_field(b"\x08", variable) + text_field(b"\x12", name) + number_field(b"\x18", slot)
        fields.append(message_field(_SLOT, reference))
    if saver:
        fields.append(message_field(_SAVER, text_field(b"\x0a", saver)))
    fields += _VALUES if has_values else _NO_VALUES, *skipped, text_field(_PYTHON, python), text_field(_HINTS, hints)
    return b"".join([_NODE, size[sum(map(len, fields))], *fields])
