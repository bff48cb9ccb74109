"""Pictures of object graphs: what is drawn, in what colour, where."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost import KeyNotFoundError
from milepost.graph.object_graph import Edge, Node, ObjectGraph, SavedValue, SlotReference
from milepost.tools.layout import place, rows_of
from milepost.tools.picture import COLOURS, MOST_NODES, OBJECT, OPTIMIZER, SLOT, VARIABLE, picture_of
from milepost.tools.svg import to_dot, to_svg

SVG = "{http://www.w3.org/2000/svg}"


def value(key):
    return (SavedValue("VARIABLE_VALUE", "", key),)


GUIDE = ObjectGraph(
    (
        Node((Edge("net", 1), Edge("optimizer", 2))),
        Node((Edge("kernel", 3),)),
        Node((), (), (SlotReference(3, "m", 4),)),
        Node(values=value("k")),
        Node(values=value("m")),
    )
)
SPECS = {"k": "float32[1,5]", "m": "float32[1,5]"}


def test_every_node_has_its_role():
    picture = picture_of(GUIDE, SPECS)
    assert [node.role for node in picture.nodes] == [OBJECT, OBJECT, OPTIMIZER, VARIABLE, SLOT]


def test_slot_edges_come_dashed_from_optimizer_and_variable():
    dashed = [edge for edge in picture_of(GUIDE, SPECS).edges if edge.dashed]
    assert [(edge.source, edge.target, edge.name) for edge in dashed] == [(2, 4, "m"), (3, 4, "m")]


def test_a_part_shows_a_slot_only_if_variable_and_optimizer_are_in_it():
    picture = picture_of(GUIDE, SPECS, root="net")
    assert [node.role for node in picture.nodes] == [OBJECT, VARIABLE]


def test_depth_folds_what_is_below_and_says_how_much():
    picture = picture_of(GUIDE, SPECS, depth=1)
    assert [node.label for node in picture.nodes] == ["", "2 more", ""], "the kernel, and its slot variable"


def test_a_folded_subtree_is_counted_to_the_bottom():
    chain = ObjectGraph((*(Node((Edge("next", n + 1),)) for n in range(9)), Node(values=value("end"))))
    assert [node.label for node in picture_of(chain, {}, depth=3).nodes] == ["", "", "", "6 more"]
    assert [node.label for node in picture_of(chain, {}, depth=0).nodes] == ["9 more"]


def test_a_large_graph_is_folded():
    children = tuple(Edge(str(n), 1 + n) for n in range(MOST_NODES - 10))
    leaves = [Node((Edge("x", MOST_NODES - 9 + n),)) for n in range(MOST_NODES - 10)]
    values = [Node(values=value(str(n))) for n in range(MOST_NODES - 10)]
    picture = picture_of(ObjectGraph((Node(children), *leaves, *values)), {})
    assert len(picture.nodes) == MOST_NODES - 9
    assert picture.nodes[1].label == "1 more"


def test_slot_variables_count_as_nodes():
    count = MOST_NODES // 2
    net = Node(tuple(Edge(str(n), 3 + n) for n in range(count)))
    optimizer = Node(slots=tuple(SlotReference(3 + n, "m", 3 + count + n) for n in range(count)))
    graph = ObjectGraph(
        (Node((Edge("net", 1), Edge("optimizer", 2))), net, optimizer, *[Node(values=value("v"))] * 2 * count)
    )
    assert [node.label for node in picture_of(graph, {}).nodes] == ["", f"{2 * count} more", ""]


def test_more_children_than_a_picture_has_room_for_are_folded_into_the_root():
    leaves = [Node(values=value(str(n))) for n in range(MOST_NODES)]
    graph = ObjectGraph((Node(tuple(Edge(str(n), 1 + n) for n in range(MOST_NODES))), *leaves))
    assert [node.label for node in picture_of(graph, {}).nodes] == [f"{MOST_NODES} more"]


def test_a_path_that_leads_nowhere_names_where_one_can_begin():
    with pytest.raises(KeyNotFoundError, match="net, optimizer"):
        picture_of(GUIDE, SPECS, root="network")


def test_names_with_slashes_can_be_followed():
    graph = ObjectGraph((Node((Edge("a/b", 1),)), Node((Edge("c", 2),)), Node(values=value("v"))))
    assert len(picture_of(graph, {}, root="a/b/c").nodes) == 1


def test_the_svg_has_the_guides_colours_and_dashes():
    text = to_svg(picture_of(GUIDE, SPECS), "title")
    root = ET.fromstring(text)
    nodes = {g.get("class"): g for g in root.iter(SVG + "g")}
    for role, colour in COLOURS.items():
        assert nodes[f"node {role}"][0].get("fill") == colour
    assert "stroke-dasharray" in text
    assert sum(g.get("class") == "edge slot" for g in root.iter(SVG + "g")) == 2
    assert {t.text for t in root.iter(SVG + "text")} == {"net", "optimizer", "kernel", "m", "float32[1,5]"}


names = st.text(max_size=12)


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 12))
    ids = st.integers(0, count - 1)
    nodes = []
    for _ in range(count):
        edges = tuple(Edge(draw(names), draw(ids)) for _ in range(draw(st.integers(0, 3))))
        slots = tuple(SlotReference(draw(ids), draw(names), draw(ids)) for _ in range(draw(st.integers(0, 1))))
        nodes.append(Node(edges, value(draw(names)) if draw(st.booleans()) else (), slots))
    return ObjectGraph(tuple(nodes))


@given(graphs(), names)
def test_any_graph_gives_well_formed_documents(graph, title):
    picture = picture_of(graph, {})
    root = ET.fromstring(to_svg(picture, title))
    assert sum(g.get("class").startswith("node") for g in root.iter(SVG + "g")) == len(picture.nodes)
    dot = to_dot(picture, title)
    assert dot.count(" -> ") >= len(picture.edges)


def test_markup_in_names_stays_text():
    graph = ObjectGraph((Node((Edge("</text><script>&\x00\x1b", 1),)), Node()))
    root = ET.fromstring(to_svg(picture_of(graph, {}), "<title>"))
    assert not list(root.iter(SVG + "script"))
    assert "<script>" in next(t.text for t in root.iter(SVG + "text"))


edges = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25)


@given(edges)
def test_no_two_nodes_touch(pairs):
    widths = [20.0 + 10 * (node % 3) for node in range(10)]
    nodes = place(widths, pairs, 5).nodes
    for a in range(10):
        for b in range(a):
            if nodes[a][1] == nodes[b][1]:
                assert abs(nodes[a][0] - nodes[b][0]) >= (widths[a] + widths[b]) / 2 + 5 - 1e-6


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda p: (min(p), max(p))), max_size=25))
def test_edges_without_cycles_point_downwards(pairs):
    rows = rows_of(10, pairs)
    assert all(rows[a] < rows[b] for a, b in pairs if a != b)


def test_a_long_chain_is_no_problem():
    count = 3000
    assert rows_of(count, [(n, n + 1) for n in range(count - 1)]) == list(range(count))


def test_dot_escapes_quotes():
    graph = ObjectGraph((Node((Edge('a"b\\', 1),)), Node()))
    assert re.search(r'label="a\\"b\\\\"', to_dot(picture_of(graph, {}), "t"))
