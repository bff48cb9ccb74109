"""Pictures of object graphs: what is drawn, in what colour, where."""

import itertools
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost import KeyNotFoundError
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph, SavedValue, SlotReference
from milepost.tools.drawing.layout import place, rows_of
from milepost.tools.drawing.picture import COLOURS, MOST_NODES, OBJECT, OPTIMIZER, SLOT, VARIABLE, DrawnEdge, picture_of
from milepost.tools.drawing.svg import STYLE, to_dot, to_svg

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


@pytest.mark.parametrize("generation", ["keras", "tf_keras", "tf_keras.optimizers.legacy"])
def test_optimizers_of_keras_without_slot_variables_are_optimizers(generation, tmp_path):
    keras = pytest.importorskip(generation.partition(".")[0])
    path = milepost.Checkpoint(first=_optimizer(keras, generation)).write(tmp_path / "ckpt")
    assert [node.role for node in milepost.draw_graph(path, depth=1).picture.nodes] == [OBJECT, OPTIMIZER]


def _optimizer(keras, generation):
    classes = keras.optimizers.legacy if generation.endswith("legacy") else keras.optimizers
    optimizer, variable = classes.SGD(0.1), keras.Variable(1.0) if generation == "keras" else _variable()
    optimizer.apply_gradients([(variable * 0 + 1.0, variable)])
    return optimizer


def _variable():
    import tensorflow

    return tensorflow.Variable(1.0)


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


def wide(count, below=0):
    """A graph whose root has many children, each with some below it."""
    children = [1 + n * (below + 1) for n in range(count)]
    nodes = []
    for child in children:
        nodes.append(Node(tuple(Edge(f"x{n}", child + 1 + n) for n in range(below)), () if below else value("v")))
        nodes += [Node(values=value("v"))] * below
    return ObjectGraph((Node(tuple(Edge(str(n), child) for n, child in enumerate(children))), *nodes))


def total(picture):
    """How many nodes of the graph a picture draws or folds."""
    return sum(node.folded + (not node.is_rest) for node in picture.nodes)


def test_what_fits_is_drawn_whole():
    assert not any(node.folded for node in picture_of(wide(MOST_NODES - 1), {}).nodes)


@pytest.mark.parametrize(("count", "below"), [(MOST_NODES, 0), (10_000, 0), (500, 20)])
def test_a_large_graph_is_folded_into_nodes_that_can_be_read(count, below):
    picture = picture_of(wide(count, below), {})
    assert 5 < len(picture.nodes) <= MOST_NODES
    assert total(picture) == 1 + count * (1 + below)


def test_of_many_children_the_first_are_drawn_and_one_node_for_the_rest():
    picture = picture_of(wide(10_000), {}, sizes={"v": 4}, limit=24)
    assert [edge.name for edge in picture.edges] == ["0", "1", "2", "3 … 9999"]
    assert picture.nodes[-1].label == f"{9_997:,} more, 39.1 KiB"
    assert (picture.nodes[-1].folded, picture.nodes[-1].size, picture.nodes[-1].role) == (9_997, 39_988, VARIABLE)


def test_a_folded_object_says_how_many_bytes_are_below_it():
    picture = picture_of(wide(10, below=2), {}, sizes={"v": 1 << 20}, limit=8)
    assert "2 more, 2.0 MiB" in [node.label for node in picture.nodes]


def test_the_only_object_that_is_folded_is_named():
    graph = ObjectGraph((Node((Edge("layer", 1),)), Node((Edge("kernel", 2),)), Node(values=value("k"))))
    assert [node.label for node in picture_of(graph, SPECS, depth=1).nodes] == ["", "kernel: float32[1,5]"]
    assert picture_of(graph, SPECS, depth=1).nodes[1].folded == 1


def test_a_limit_of_one_draws_the_root():
    assert [node.label for node in picture_of(wide(7), {}, limit=1).nodes] == ["7 more"]


def test_slot_variables_count_as_nodes():
    count = MOST_NODES // 2
    net = Node(tuple(Edge(str(n), 3 + n) for n in range(count)))
    optimizer = Node(slots=tuple(SlotReference(3 + n, "m", 3 + count + n) for n in range(count)))
    graph = ObjectGraph(
        (Node((Edge("net", 1), Edge("optimizer", 2))), net, optimizer, *[Node(values=value("v"))] * 2 * count)
    )
    picture = picture_of(graph, {})
    assert len(picture.nodes) <= MOST_NODES
    assert total(picture) == 3 + 2 * count


def test_the_optimizer_points_to_the_node_that_has_its_folded_slot_variables():
    picture = picture_of(GUIDE, SPECS, depth=1)
    assert DrawnEdge(2, 1, "m", dashed=True) in picture.edges


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
    drawn = [g for g in root.iter(SVG + "g") if g.get("class") != "legend"]
    assert {t.text for g in drawn for t in g.iter(SVG + "text")} == {"net", "optimizer", "kernel", "m", "float32[1,5]"}


def test_no_line_is_seen_through_a_name_of_several_words():
    nodes = Node((Edge("kernel", 1), Edge("_kernel", 1), Edge("bias", 2))), Node(), Node()
    root = ET.fromstring(to_svg(picture_of(ObjectGraph(nodes), {}), "title"))
    names = root.findall(f".//{SVG}g[@class='edge-name']")
    behind = {name.find(f"{SVG}text").text: name.find(f"{SVG}rect") for name in names}
    assert behind["bias"] is None
    text, rect = names[0].find(f"{SVG}text"), behind["kernel, _kernel"]
    middle = float(rect.get("x")) + float(rect.get("width")) / 2
    assert middle == pytest.approx(float(text.get("x")), abs=0.1)
    assert float(rect.get("y")) < float(text.get("y")) < float(rect.get("y")) + float(rect.get("height"))


def test_the_legend_names_the_roles_of_the_picture():
    def legend(picture):
        root = ET.fromstring(to_svg(picture, "title"))
        return [t.text for g in root.iter(SVG + "g") if g.get("class") == "legend" for t in g.iter(SVG + "text")]

    assert legend(picture_of(GUIDE, SPECS)) == ["object", "optimizer", "variable", "slot variable"]
    assert legend(picture_of(wide(70), {})) == ["object", "variable", "several, folded"]


def test_a_picture_that_would_be_too_wide_goes_to_the_right():
    """Pages are scrolled downwards."""
    width, height = re.search(r'width="(\d+)" height="(\d+)"', to_svg(picture_of(wide(50), {}), "t")).groups()
    assert int(width) < 400
    assert int(height) > 1500


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


@given(graphs(), st.integers(1, 12))
def test_every_node_is_drawn_or_counted_once(graph, limit):
    part = picture_of(graph, {}, limit=limit)
    assert len(part.nodes) <= limit
    assert total(part) == len(picture_of(graph, {}, limit=1000).nodes)


@given(graphs(), names, st.integers(1, 12))
def test_any_graph_gives_well_formed_documents(graph, title, limit):
    picture = picture_of(graph, {}, limit=limit)
    root = ET.fromstring(to_svg(picture, title))
    assert sum(g.get("class").startswith("node") for g in root.iter(SVG + "g")) == len(picture.nodes)
    dot = to_dot(picture, title)
    assert dot.count(" -> ") >= len(picture.edges)


def test_markup_in_names_stays_text():
    graph = ObjectGraph((Node((Edge("</text><script>&\x00\x1b", 1),)), Node()))
    root = ET.fromstring(to_svg(picture_of(graph, {}), "<title>"))
    assert not list(root.iter(SVG + "script"))
    assert "<script>" in next(t.text for t in root.iter(SVG + "text"))


def test_names_of_edges_that_arrive_together_stand_apart():
    """Two objects that lead to the same fifty others, so that the picture goes to the right."""
    edges = tuple(Edge(f"a-{n}", 3 + n) for n in range(50)), tuple(Edge(f"second-{n}", 3 + n) for n in range(50))
    graph = ObjectGraph((Node((Edge("x", 1), Edge("y", 2))), *map(Node, edges), *[Node(values=value("v"))] * 50))
    root = ET.fromstring(to_svg(picture_of(graph, {}), "t"))
    names = [
        text for group in root.iter(SVG + "g") if group.get("class") == "edge-name" for text in group.iter(SVG + "text")
    ]
    by_line = {}
    for text in names:
        by_line.setdefault(text.get("y"), []).append((float(text.get("x")), len(text.text) * 5))
    pairs = [pair for pair in by_line.values() if len(pair) == 2]
    assert len(pairs) > 5
    for pair in pairs:
        for (x1, w1), (x2, w2) in itertools.pairwise(sorted(pair)):
            assert x2 - x1 >= (w1 + w2) / 2


SLOTS = ObjectGraph(
    (
        Node((Edge("net", 1), Edge("optimizer", 2))),
        Node((Edge("encoder", 3), Edge("head", 4))),
        Node(slots=tuple(SlotReference(5 + n, "momentum", 9 + n) for n in range(4))),
        *(Node((Edge("kernel", first), Edge("bias", first + 1))) for first in (5, 7)),
        *[Node(values=value("v"))] * 8,
    )
)


def test_the_two_names_of_a_slot_variable_stand_apart():
    root = ET.fromstring(to_svg(picture_of(SLOTS, {}), "t"))
    texts = [t for g in root.iter(SVG + "g") if g.get("class") == "edge-name" for t in g.iter(SVG + "text")]
    places = [(float(t.get("x")), float(t.get("y"))) for t in texts if t.text == "momentum"]
    assert len(places) == 8
    for (x1, y1), (x2, y2) in itertools.combinations(places, 2):
        assert abs(x1 - x2) >= len("momentum") * 5 or abs(y1 - y2) >= 11


def test_no_edge_leaves_the_picture():
    """The edge to the last slot variable goes around everything else."""
    text = to_svg(picture_of(SLOTS, {"v": "float32[8]"}), "t")
    width = float(re.search(r' width="(\d+)"', text)[1])
    paths = re.findall(r'<path d="(M[^"]*)" marker-end', text)
    across = [float(x) for path in paths for x, _ in re.findall(r"([-\d.]+) ([-\d.]+)", path)]
    assert min(across) > 0
    assert max(across) < width - 10


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


def test_what_a_picture_shows_is_written_below_it():
    """Somebody who has only the picture reads which checkpoint it shows."""

    def written(title):
        root = ET.fromstring(to_svg(picture_of(GUIDE, SPECS), title))
        (text,) = (each for each in root.iter(SVG + "text") if each.get("class") == "title")
        assert float(text.get("y")) < float(root.get("height"))
        return text.text

    assert written("Object graph of ./run/ckpt-1") == "Object graph of ./run/ckpt-1"
    assert written(f"Object graph of ./{'x' * 500}/ckpt-1").startswith("…x")
    assert written(f"Object graph of ./{'x' * 500}/ckpt-1").endswith("x/ckpt-1")


def test_a_title_that_is_wider_than_the_nodes_has_room():
    text = to_svg(picture_of(wide(1), {}), "Object graph of ./checkpoints/training/run-17/ckpt-1000")
    assert float(re.search(r' width="(\d+)"', text)[1]) > 55 * 6


def light(colour):
    """The relative luminance of a colour, as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("role", [OPTIMIZER, VARIABLE, SLOT])
def test_the_text_in_a_node_has_contrast(role):
    """At least 4.5 to 1, as WCAG 2 asks for."""
    style = dict(re.findall(r"\.object-graph \.(\w+) text \{ fill: (#\w+); \}", STYLE))
    two = sorted([light(style.get(role, style["node"])), light(COLOURS[role])])
    assert (two[1] + 0.05) / (two[0] + 0.05) >= 4.5


def test_the_text_in_a_slot_variable_has_contrast_in_graphviz_too():
    lines = to_dot(picture_of(GUIDE, SPECS), "t").splitlines()
    assert [COLOURS[SLOT] in line for line in lines] == ["fontcolor=black" in line for line in lines]
