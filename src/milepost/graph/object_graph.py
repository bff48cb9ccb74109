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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

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


_EMPTY: Final[tuple[Any, ...]] = ()
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
        graph = _MESSAGES["TrackableObjectGraph"]()
        add = graph.nodes.add
        with_values = self.nodes_with_values()
        try:
            for node, has_values in zip(self.nodes, with_values, strict=True):
                saved = add()
                if node.children:
                    add_child = saved.children.add
                    for name, child in node.children:
                        add_child(node_id=child, local_name=name)
                for name, full_name, key, skipped in node.values:
                    values = saved.skipped_by_tensorflow if skipped else saved.attributes
                    values.add(name=name, full_name=full_name, checkpoint_key=key)
                for variable, name, slot in node.slots:
                    saved.slot_variables.add(
                        original_variable_node_id=variable, slot_name=name, slot_variable_node_id=slot
                    )
                if node.saver:
                    saved.registered_saver.name = node.saver
                if node.python:
                    saved.python = node.python
                if has_values:
                    saved.has_checkpoint_values.value = True
                else:
                    saved.has_checkpoint_values.SetInParent()
            data: bytes = graph.SerializeToString()
        except UnicodeEncodeError as error:
            raise UntrackableError(
                "a name in the object graph is not valid Unicode", found=ascii(error.object), expected="UTF-8"
            ) from None
        return data

    @classmethod
    def deserialize(cls, data: bytes) -> ObjectGraph:
        """Reads a serialized graph.

        Raises:
            CorruptCheckpointError: The bytes are not a graph, or refer to nodes that do not exist.
        """
        graph = parse(_MESSAGES["TrackableObjectGraph"], data, what="the object graph")
        count = len(graph.nodes)
        if not count:
            raise CorruptCheckpointError(
                "the object graph is empty", expected="at least the root's node", found="0 nodes"
            )
        nodes = []
        for saved in graph.nodes:
            children = saved.children
            values = [SavedValue(v.name, v.full_name, v.checkpoint_key) for v in saved.attributes]
            if skipped := saved.skipped_by_tensorflow:
                values += [SavedValue(v.name, v.full_name, v.checkpoint_key, True) for v in skipped]
            slots = saved.slot_variables
            python = saved.python
            if not (children or values or slots or python or saved.HasField("registered_saver")):
                nodes.append(_BARE)
                continue
            nodes.append(
                Node(
                    tuple([Edge(edge.local_name, edge.node_id) for edge in children]) if children else _EMPTY,
                    tuple(values) if values else _EMPTY,
                    tuple(
                        [
                            SlotReference(s.original_variable_node_id, s.slot_name, s.slot_variable_node_id)
                            for s in slots
                        ]
                    )
                    if slots
                    else _EMPTY,
                    saved.registered_saver.name if saved.HasField("registered_saver") else "",
                    python,
                )
            )
        _check_references(nodes)
        return cls(tuple(nodes))

    def writer_saves(self) -> tuple[bool, bool]:
        """Whether the writer saves values that TensorFlow skips, and whether it saves plain values."""
        skipped = any(value.skipped_by_tensorflow for node in self.nodes for value in node.values)
        return skipped, any(node.python for node in self.nodes)

    def nodes_with_values(self) -> list[bool]:
        """For each node, whether it has values, or a node that can be reached from it has.

        This is computed rather than read from the file. Files from before TensorFlow 2.9 lack the field, and a wrong field would
        hide values.
        """
        holds = [bool(node.values or node.slots or node.saver) for node in self.nodes]
        # Most children have a higher number than their parents, so one pass backwards finds almost all.
        for number in range(len(holds) - 1, -1, -1):
            if not holds[number]:
                for _, child in self.nodes[number].children:
                    if holds[child]:
                        holds[number] = True
                        break
        parents: dict[int, list[int]] = {}
        for number, node in enumerate(self.nodes):
            if not holds[number]:
                for _, child in node.children:
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
    for number, node in enumerate(nodes):
        for edge in node.children:
            if not 0 <= edge.node < count:
                raise _dangling(number, edge.node, count)
        for reference in node.slots:
            if not (0 <= reference.variable < count and 0 <= reference.slot < count):
                raise _dangling(number, reference, count)


def _dangling(number: int, target: object, count: int) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"node {number} of the object graph refers to a node that does not exist",
        expected=f"nodes 0 to {count - 1}",
        found=target,
    )
