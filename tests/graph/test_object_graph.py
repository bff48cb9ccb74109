"""The serialized object graph."""

import contextlib
import gc
import tracemalloc

import google.protobuf
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from milepost import CorruptCheckpointError
from milepost.graph.saved import decoding
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph, SavedValue, SlotReference


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 8))
    ids = st.integers(0, count - 1)
    edges = st.lists(st.builds(Edge, st.text(max_size=5), ids), max_size=4).map(tuple)
    text = st.text(max_size=5)
    values = st.lists(st.builds(SavedValue, text, text, text, st.booleans()), max_size=3)
    slots = st.lists(st.builds(SlotReference, ids, st.text(max_size=3), ids), max_size=2)
    public_first = values.map(lambda values: tuple(sorted(values, key=lambda value: value.skipped_by_tensorflow)))
    nodes = st.builds(Node, edges, public_first, slots.map(tuple), text, text)
    return ObjectGraph(tuple(draw(st.lists(nodes, min_size=count, max_size=count))))


@given(graphs())
def test_a_graph_survives_serialization(graph):
    assert ObjectGraph.deserialize(graph.serialize()) == graph


@given(graphs())
def test_the_bytes_are_those_of_protobuf(graph):
    assert graph.serialize() == by_protobuf(graph)


@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 20_000])
def test_the_bytes_are_those_of_protobuf_for_keys_of_any_size(size):
    graph = ObjectGraph(tuple(Node(values=(SavedValue("VALUE", "", letter * size),)) for letter in "abü"))
    assert graph.serialize() == by_protobuf(graph)


def by_protobuf(graph):
    message = decoding.MESSAGES["TrackableObjectGraph"]()
    for node, has_values in zip(graph.nodes, graph.nodes_with_values(), strict=True):
        saved = message.nodes.add()
        for name, child in node.children:
            saved.children.add(node_id=child, local_name=name)
        for name, full_name, key, skipped in node.values:
            values = saved.skipped_by_tensorflow if skipped else saved.attributes
            values.add(name=name, full_name=full_name, checkpoint_key=key)
        for variable, name, slot in node.slots:
            saved.slot_variables.add(original_variable_node_id=variable, slot_name=name, slot_variable_node_id=slot)
        if node.saver:
            saved.registered_saver.name = node.saver
        saved.python, saved.hints = node.python, node.hints
        if has_values:
            saved.has_checkpoint_values.value = True
        else:
            saved.has_checkpoint_values.SetInParent()
    return message.SerializeToString()


KEYS = st.text("ab/\x04é", max_size=4) | st.just("a" * 97)
"""Keys that may occur in the other fields of a node too, also as a length."""
LEAVES = st.builds(
    lambda *value, python, hints: Node(values=(SavedValue(*value),), python=python, hints=hints),
    KEYS,
    st.sampled_from(["", "a"]),
    KEYS,
    st.booleans(),
    python=KEYS,
    hints=st.sampled_from(["", '{"strides":[1]}']),
)


@given(st.lists(LEAVES | st.just(Node()), min_size=1, max_size=60))
def test_nodes_that_are_alike_are_decoded_like_all_others(nodes):
    assert ObjectGraph.deserialize(by_protobuf(ObjectGraph(tuple(nodes)))).nodes == tuple(nodes)


def nodes_one_by_one(data):
    """The nodes as the general parser reads each."""
    graph = decoding.MESSAGES["TrackableObjectGraph"].FromString(data)
    return tuple(decoding._decoded(node.SerializeToString()) for node in graph.nodes)


@given(graphs(), st.data())
def test_damage_is_read_as_the_general_parser_reads_it(graph, data):
    """A byte of a graph is changed. If that leaves a graph, all forms of its fields have the same meaning."""
    changed = bytearray(graph.serialize())
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        expected = nodes_one_by_one(bytes(changed))
    except (DecodeError, CorruptCheckpointError):
        with pytest.raises(CorruptCheckpointError):
            ObjectGraph.deserialize(bytes(changed))
        return
    references = {edge.node for node in expected for edge in node.children}
    references |= {number for node in expected for slot in node.slots for number in (slot.variable, slot.slot)}
    if expected and references <= set(range(len(expected))):
        assert ObjectGraph.deserialize(bytes(changed)).nodes == expected
    else:
        with pytest.raises(CorruptCheckpointError):
            ObjectGraph.deserialize(bytes(changed))


def numbers(count):
    """The graph of a list of numbers."""
    leaves = [Node((), (SavedValue("VALUE", "", f"n/{number}/.ATTRIBUTES/VALUE"),)) for number in range(count)]
    members = tuple(Edge(str(number), number + 1) for number in range(count))
    return ObjectGraph((Node(members, python="list"), *leaves))


def test_a_graph_of_many_values_takes_little_more_memory_than_its_bytes():
    graph = numbers(40_000)
    data = graph.serialize()
    gc.collect()
    tracemalloc.start()
    decoded = ObjectGraph.deserialize(data)
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoded == graph
    assert kept < 1.6 * len(data)
    assert most < 3.5 * len(data)


def test_nodes_and_edges_of_a_file_are_sequences_like_tuples():
    graph = numbers(20)
    nodes, edges = ObjectGraph.deserialize(graph.serialize()).nodes, graph.nodes[0].children
    assert (nodes[-1], nodes[1:3]) == (graph.nodes[-1], graph.nodes[1:3])
    assert (nodes[0].children[-1], nodes[0].children[1:3], edges[5] in nodes[0].children) == (
        edges[-1],
        edges[1:3],
        True,
    )
    assert (repr(nodes), hash(nodes)) == (repr(graph.nodes), hash(graph.nodes))
    with pytest.raises(IndexError):
        nodes[21]


def test_a_key_that_is_no_text_is_damage_also_where_other_nodes_are_alike():
    def leaf(key):
        return Node(values=(SavedValue("VARIABLE_VALUE", "", key),))

    data = ObjectGraph((leaf("one"), leaf("two"), leaf("six"))).serialize()
    with pytest.raises(CorruptCheckpointError):
        ObjectGraph.deserialize(data.replace(b"six", b"s\xffx"))


def test_a_size_in_a_form_that_protobuf_refuses_is_damage():
    """Its varint is longer than five bytes, with zero groups at the end. Before version 7, protobuf reads it."""
    refused = int(google.protobuf.__version__.partition(".")[0]) >= 7
    node = Node(values=(SavedValue("VARIABLE_VALUE", "", "k" * 9),))
    data = ObjectGraph((node,)).serialize()

    def with_zero_groups(count):
        return data[:1] + bytes([data[1] | 0x80]) + b"\x80" * (count - 1) + b"\0" + data[2:]

    for count in (1, 4):
        assert ObjectGraph.deserialize(with_zero_groups(count)).nodes == (node,)
    for count in (5, 8):
        with pytest.raises(CorruptCheckpointError) if refused else contextlib.nullcontext():
            assert ObjectGraph.deserialize(with_zero_groups(count)).nodes == (node,)


def test_a_graph_with_fields_that_are_not_known_is_read():
    graph = ObjectGraph((Node((Edge("a", 1),)), Node(values=(SavedValue("v", "", "k"),))))
    data = graph.serialize()
    unknown = bytes.fromhex("7a0130")  # field 15
    assert ObjectGraph.deserialize(unknown + data + unknown) == graph


def test_a_node_has_values_if_anything_below_it_has():
    value = (SavedValue("VARIABLE_VALUE", "", "k"),)
    graph = ObjectGraph(
        (Node((Edge("a", 1), Edge("b", 2))), Node((Edge("x", 3), Edge("up", 0))), Node(), Node(values=value))
    )
    assert graph.nodes_with_values() == [True, True, False, True]


@pytest.mark.parametrize(
    "node",
    [
        Node((Edge("a", 7),)),
        Node((Edge("a", -1),)),
        Node(slots=(SlotReference(7, "m", 0),)),
        Node(slots=(SlotReference(0, "m", 7),)),
    ],
)
def test_a_reference_to_a_node_that_is_not_there_is_damage(node):
    with pytest.raises(CorruptCheckpointError, match="does not exist"):
        ObjectGraph.deserialize(_serialize_unchecked(node))


def _serialize_unchecked(node):
    graph = decoding.MESSAGES["TrackableObjectGraph"]()
    saved = graph.nodes.add()
    for name, child in node.children:
        saved.children.add(node_id=child, local_name=name)
    for variable, name, slot in node.slots:
        saved.slot_variables.add(original_variable_node_id=variable, slot_name=name, slot_variable_node_id=slot)
    return graph.SerializeToString()


def test_an_empty_graph_is_damage():
    with pytest.raises(CorruptCheckpointError, match="empty"):
        ObjectGraph.deserialize(b"")


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_our_error(data):
    try:
        ObjectGraph.deserialize(data)
    except CorruptCheckpointError:
        pass


def test_the_inner_nodes_are_those_with_children_slots_or_a_custom_saver():
    values = (SavedValue("VALUE", "", "x/.ATTRIBUTES/VALUE"),)
    two = (*values, SavedValue("OTHER", "", "x/.ATTRIBUTES/OTHER"))
    leaves = [Node(saver="own"), Node(slots=(SlotReference(1, "m", 1),)), Node(values=values), Node(values=two), Node()]
    edges = tuple(Edge(str(number), number) for number in range(1, 101))
    graph = ObjectGraph((Node(children=edges), *(each for each in leaves for _ in range(20))))
    assert ObjectGraph.deserialize(graph.serialize()).inner == graph.inner
    assert [number for number, _ in graph.inner] == list(range(41))


@pytest.mark.parametrize("target", [1, 2, 2**31 - 1])
def test_an_edge_to_a_node_that_does_not_exist_is_refused(target):
    whole = decoding.MESSAGES["TrackableObjectGraph"]()
    whole.nodes.add().children.add(node_id=target, local_name="a")
    with pytest.raises(CorruptCheckpointError, match="node"):
        ObjectGraph.deserialize(whole.SerializeToString())


def test_a_node_holds_values_if_it_or_a_node_below_it_has_values_slots_or_a_custom_saver():
    slots = (SlotReference(1, "m", 1),)
    graph = ObjectGraph((Node(children=(Edge("a", 1), Edge("b", 2))), Node(slots=slots), Node(), Node(saver="own")))
    assert graph.nodes_with_values() == [True, True, False, True]
