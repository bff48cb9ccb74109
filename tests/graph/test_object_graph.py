"""The serialized object graph."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost import CorruptCheckpointError
from milepost.graph.object_graph import Edge, Node, ObjectGraph, SavedValue, SlotReference


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 8))
    ids = st.integers(0, count - 1)
    edges = st.lists(st.builds(Edge, st.text(max_size=5), ids), max_size=4).map(tuple)
    text = st.text(max_size=5)
    values = st.lists(st.builds(SavedValue, text, text, text, st.booleans()), max_size=3)
    slots = st.lists(st.builds(SlotReference, ids, st.text(max_size=3), ids), max_size=2)
    public_first = values.map(lambda values: tuple(sorted(values, key=lambda value: value.skipped_by_tensorflow)))
    nodes = st.builds(Node, edges, public_first, slots.map(tuple))
    return ObjectGraph(tuple(draw(st.lists(nodes, min_size=count, max_size=count))))


@given(graphs())
def test_a_graph_survives_serialization(graph):
    assert ObjectGraph.deserialize(graph.serialize()) == graph


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
    from milepost.graph import object_graph

    graph = object_graph._MESSAGES["TrackableObjectGraph"]()
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
