"""What a picture of an object graph leaves out or draws once, and that neither hides a difference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph, SavedValue, SlotReference
from milepost.tools.drawing.picture import FEW_NODES, SLOT, picture_of
from tests.tools.test_picture import total

BLOCKS = 4
"""In the graph of `blocks`."""
EACH = 8
"""The nodes of a block: itself, and seven variables."""


def blocks(more=()):
    """A graph of equal blocks in a list.

    Args:
        more: Further children of the root, as nodes that the last numbers of the graph lead to.
    """
    nodes = [Node((Edge("blocks", 1), *(Edge(f"more_{'abc'[at]}", 2 + BLOCKS * EACH + at) for at in range(len(more)))))]
    nodes.append(Node(tuple(Edge(str(block), 2 + block * EACH) for block in range(BLOCKS))))
    for block in range(BLOCKS):
        start = 2 + block * EACH
        nodes.append(Node(tuple(Edge(f"w{'abcdefg'[at]}", start + 1 + at) for at in range(EACH - 1))))
        nodes += [Node(values=(SavedValue("VARIABLE_VALUE", "", f"{block}/{at}"),)) for at in range(EACH - 1)]
    return ObjectGraph((*nodes, *more))


SPECS = {f"{block}/{at}": f"float32[{at}]" for block in range(BLOCKS) for at in range(EACH - 1)}


def simple(graph, specs=SPECS, **options):
    return picture_of(graph, specs, **{"everything": False, "limit": 1000} | options)


def changed(graph, number, **changes):
    nodes = list(graph.nodes)
    nodes[number] = nodes[number]._replace(**changes)
    return ObjectGraph(tuple(nodes))


def times(picture):
    """The names of the edges to blocks that are drawn once, and how many these are."""
    return {
        edge.name: picture.nodes[edge.target].times for edge in picture.edges if picture.nodes[edge.target].times > 1
    }


def test_equal_blocks_are_drawn_once_with_their_number():
    picture = simple(blocks())
    assert times(picture) == {"0 … 3": 4}
    assert [node.label for node in picture.nodes if node.times > 1] == ["× 4"]
    assert (len(picture.nodes), picture.copies) == (2 + EACH, 3 * EACH)


def test_everything_is_drawn_if_asked():
    picture = simple(blocks(), everything=True)
    assert (len(picture.nodes), picture.copies, times(picture)) == (2 + BLOCKS * EACH, 0, {})


def test_a_graph_of_few_nodes_is_drawn_as_it_is():
    graph = ObjectGraph(
        (Node(tuple(Edge(str(at), 1 + at) for at in range(5))), *[Node(values=blocks().nodes[3].values)] * 5)
    )
    assert len(graph.nodes) < FEW_NODES
    assert len(simple(graph).nodes) == 6


SECOND = 2 + EACH
"""The second block."""
A_VARIABLE = SECOND + 3


@pytest.mark.parametrize(
    "different",
    {
        "a name": lambda graph: changed(
            graph, SECOND, children=(Edge("other", SECOND + 1), *graph.nodes[SECOND].children[1:])
        ),
        "one child less": lambda graph: changed(graph, SECOND, children=graph.nodes[SECOND].children[:-1]),
        "another order": lambda graph: changed(graph, SECOND, children=graph.nodes[SECOND].children[::-1]),
        "a name more for a child": lambda graph: changed(
            graph, SECOND, children=(*graph.nodes[SECOND].children, Edge("also", SECOND + 1))
        ),
        "hints": lambda graph: changed(graph, A_VARIABLE, hints="{}"),
        "a Python type": lambda graph: changed(graph, A_VARIABLE, python="int"),
        "a weight of another block": lambda graph: changed(
            graph, SECOND, children=(Edge("wa", 3), *graph.nodes[SECOND].children[1:])
        ),
    }.values(),
)
def test_a_block_that_differs_is_drawn_by_itself(different):
    picture = simple(different(blocks()))
    assert len([edge for edge in picture.edges if edge.source == 1]) >= 2
    assert max(times(picture).values()) < 4


@pytest.mark.parametrize("spec", ["float32[3,3]", "float16[2]"])
def test_a_block_of_another_shape_or_element_type_is_drawn_by_itself(spec):
    assert times(simple(blocks(), SPECS | {"1/2": spec})) == {"0, 2, 3": 3}


def test_a_block_whose_weight_another_object_has_too_is_drawn_by_itself():
    tied = Node((Edge("weight", A_VARIABLE),))
    picture = simple(blocks([tied]))
    assert times(picture) == {"0, 2, 3": 3}
    assert "more_a" in [edge.name for edge in picture.edges], "the object that has the weight is drawn"


def test_blocks_that_refer_to_the_same_object_are_equal():
    graph = blocks([Node(values=(SavedValue("VARIABLE_VALUE", "", "shared"),))])
    for block in range(BLOCKS):
        number = 2 + block * EACH
        graph = changed(graph, number, children=(*graph.nodes[number].children, Edge("shared", len(graph.nodes) - 1)))
    assert times(simple(graph)) == {"0 … 3": 4}


def optimized(owned):
    """The graph of equal blocks, and an optimizer that has two slot variables for each of some variables."""
    slots = [Node(values=(SavedValue("VARIABLE_VALUE", "", f"slot/{at}"),)) for at in range(2 * len(owned))]
    first = 3 + BLOCKS * EACH
    references = [
        SlotReference(variable, name, first + 2 * at + second)
        for at, variable in enumerate(owned)
        for second, name in enumerate(("m", "v"))
    ]
    graph = blocks([Node(slots=tuple(references))])
    return ObjectGraph((*graph.nodes, *slots)), SPECS | {f"slot/{at}": "float32[9]" for at in range(len(slots))}


def test_slot_variables_are_drawn_beside_their_variable_without_lines_from_the_optimizer():
    owned = [2 + block * EACH + 1 + at for block in range(BLOCKS) for at in range(EACH - 1)]
    picture = simple(*optimized(owned))
    assert times(picture) == {"0 … 3": 4}
    dashed = [edge for edge in picture.edges if edge.dashed]
    assert {edge.name for edge in dashed} == {"m, v"}
    assert {picture.nodes[edge.target].label for edge in dashed} == {"2 × float32[9]"}
    assert all(picture.nodes[edge.target].parent == edge.source for edge in dashed)
    assert "56 slot variables" in [node.label for node in picture.nodes]
    assert sum(node.role == SLOT for node in picture.nodes) == EACH - 1


def test_a_block_without_slot_variables_is_drawn_by_itself():
    owned = [2 + block * EACH + 1 for block in (0, 2, 3)]
    assert times(simple(*optimized(owned))) == {"0, 2, 3": 3}


def test_what_holds_nothing_is_left_out():
    live = milepost.Checkpoint(a=milepost.Variable(1.0), empty=milepost.Checkpoint(inside=milepost.Checkpoint()))
    drawing = milepost.draw_graph(live)
    assert [edge.name for edge in drawing.picture.edges] == ["a"]
    assert "2 objects without values of their own left out" in repr(drawing)
    everything = milepost.draw_graph(live, everything=True)
    assert [edge.name for edge in everything.picture.edges] == ["a", "empty", "inside"]


def test_a_list_of_what_its_owner_holds_is_left_out():
    layer = milepost.Checkpoint(w=milepost.Variable(1.0))
    picture = milepost.draw_graph(milepost.Checkpoint(layer=layer, layers=[layer])).picture
    assert [edge.name for edge in picture.edges] == ["layer", "w"]


def test_what_holds_a_value_of_another_object_is_drawn():
    weight = milepost.Variable(1.0)
    live = milepost.Checkpoint(embedding=milepost.Checkpoint(w=weight), head=milepost.Checkpoint(w=weight))
    assert [edge.name for edge in milepost.draw_graph(live).picture.edges] == ["embedding", "head", "w", "w"]


def test_a_model_of_four_blocks(tmp_path):
    torch = pytest.importorskip("torch")
    layers = torch.nn.ModuleList(
        [torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(4)]
    )
    optimizer = torch.optim.Adam(layers.parameters())
    value = torch.ones(1, 2, 8)
    for layer in layers:
        value = layer(value)
    value.sum().backward()
    optimizer.step()
    path = milepost.Checkpoint(model=layers, optimizer=optimizer).write(tmp_path / "ckpt")
    assert times(milepost.draw_graph(path, limit=1000).picture)["0 … 3"] == 4
    with torch.no_grad():
        layers[2].linear1.bias = torch.nn.Parameter(torch.zeros(3))
    path = milepost.Checkpoint(model=layers).write(tmp_path / "other")
    assert times(milepost.draw_graph(path, limit=1000).picture)["0, 1, 3"] == 3


def graphs():
    def made(count):
        numbers = st.integers(0, count - 1)
        edges = st.lists(
            st.builds(Edge, st.sampled_from(["0", "1", "2", "w", "_variables", "_iterations"]), numbers), max_size=5
        )
        values = st.sampled_from([(), (SavedValue("VARIABLE_VALUE", "", "k"),)])
        slots = st.lists(st.builds(SlotReference, numbers, st.just("m"), numbers), max_size=2)
        return st.lists(st.builds(Node, edges.map(tuple), values, slots.map(tuple)), min_size=count, max_size=count)

    return st.integers(1, 40).flatmap(made).map(lambda nodes: ObjectGraph(tuple(nodes)))


@given(graphs(), st.sampled_from([1, 5, 20, 1000]))
def test_every_object_is_drawn_or_counted_once(graph, limit):
    picture = simple(graph, {"k": "float32[]"}, limit=limit)
    whole = picture_of(graph, {"k": "float32[]"}, limit=1000)
    assert total(picture) + picture.copies + picture.left_out == total(whole)
    assert all(node.parent < max(1, at) for at, node in enumerate(picture.nodes))


def test_thousands_of_equal_blocks_are_drawn_once():
    live = {str(at): {"a": np.zeros(2), "b": [np.zeros(3), np.zeros(4)]} for at in range(2_000)}
    picture = milepost.draw_graph(milepost.Checkpoint(net=live)).picture
    assert times(picture) == {"0 … 1999": 2_000}
    assert picture.copies > 2_000
