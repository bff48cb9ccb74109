"""Parts of an object graph are left out by name."""

import hypothesis
import pytest
from hypothesis import strategies as st

from milepost.graph.saved.nodes import Edge, Node, SavedValue, SlotReference
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.graph.saved.selection import selected


def value(key):
    return (SavedValue("VARIABLE_VALUE", "", key),)


def edges(**children):
    return tuple(Edge(name, node) for name, node in children.items())


def of_training():
    """A model of two variables, and an optimizer with a slot variable for each and a rate."""
    return ObjectGraph(
        (
            Node(edges(model=1, optimizer=4)),
            Node(edges(a=2, b=3)),
            Node(values=value("a")),
            Node(values=value("b")),
            Node(edges(rate=5), slots=(SlotReference(2, "m", 6), SlotReference(3, "m", 7))),
            Node(values=value("rate")),
            Node(values=value("m of a")),
            Node(values=value("m of b")),
        )
    )


def tied(**names):
    """A value with two names below different objects."""
    return ObjectGraph(
        (
            Node(edges(first=1, second=2)),
            Node(edges(w=3, own=4)),
            Node(edges(v=3)),
            Node(values=value("w")),
            Node(values=value("own")),
        )
    )


def kept(graph):
    """The keys of the values in a graph, and the paths to them."""
    found, pending, seen = {}, [(0, "")], set()
    while pending:
        node, path = pending.pop()
        for each in graph.nodes[node].values:
            found.setdefault(each.key, set()).add(path)
        for name, child in graph.nodes[node].children:
            if (node, name, path) not in seen:
                seen.add((node, name, path))
                pending.append((child, f"{path}/{name}".strip("/")))
    return found


def never(path):
    return False


def below(*names):
    return lambda path: any(path == name or path.startswith(f"{name}/") for name in names)


def test_objects_below_which_nothing_is_left_go_with_their_values():
    found = selected(of_training(), lambda path: path == "model/a", never)
    assert kept(found.graph) == {"a": {"model/a"}}
    assert [edge.name for edge in found.graph.nodes[0].children] == ["model"]
    assert found.left_out == ["b", "m of a", "m of b", "rate"]


def test_a_slot_variable_is_decided_by_its_own_path():
    wanted = "model/b/.OPTIMIZER_SLOT/optimizer/m"
    found = selected(of_training(), below(wanted), never)
    assert found.graph.nodes[4].slots == (SlotReference(3, "m", 7),)
    assert found.graph.nodes[7].values == value("m of b")
    assert found.left_out == ["a", "b", "m of a", "rate"]


def test_the_variable_and_the_optimizer_of_a_slot_variable_stay_without_their_values():
    found = selected(of_training(), below("model/b/.OPTIMIZER_SLOT/optimizer/m"), never)
    assert found.graph.nodes[0].children == edges(model=1, optimizer=4)
    assert found.graph.nodes[1].children == edges(b=3)
    assert found.graph.nodes[3].values == ()
    assert found.variables == {3: value("b")}


def test_a_value_with_two_names_is_taken_by_the_second_and_only_by_it():
    found = selected(tied(), below("second"), never)
    assert kept(found.graph) == {"w": {"second/v"}}


def test_a_value_with_two_names_is_ignored_by_the_shorter_one():
    ignored = below("first/w")
    found = selected(tied(), lambda path: not ignored(path), ignored)
    assert kept(found.graph) == {"own": {"first/own"}}


def test_if_its_other_name_is_ignored_a_value_loses_that_name():
    ignored = below("second")
    found = selected(tied(), lambda path: not ignored(path), ignored)
    assert kept(found.graph) == {"w": {"first/w"}, "own": {"first/own"}}
    assert found.left_out == []


def test_an_optimizer_has_its_shortest_name_alone():
    graph = of_training()
    nodes = (*graph.nodes[:1], graph.nodes[1]._replace(children=edges(a=2, b=3, optimizer=4)), *graph.nodes[2:])
    before_the_first_step = (*nodes[:4], nodes[4]._replace(slots=()), *nodes[5:])
    for compiled, optimizers, expected in (
        (nodes, (), {"a", "b"}),
        (before_the_first_step, {"optimizer"}, {"a", "b"}),
        (before_the_first_step, (), {"a", "b", "rate"}),
    ):
        found = selected(ObjectGraph(compiled), below("model"), never, optimizers)
        assert kept(found.graph).keys() == expected


def test_without_live_objects_no_variable_stays_without_its_value():
    found = selected(of_training(), below("model/b/.OPTIMIZER_SLOT/optimizer/m"), never, as_saved=True)
    assert found.graph.nodes[0].children == edges(optimizer=4)
    assert found.variables == {3: value("b")}


def test_a_graph_that_leads_back_to_itself_is_selected():
    graph = ObjectGraph((Node(edges(a=1)), Node(edges(me=1, root=0, w=2)), Node(values=value("w"))))
    assert kept(selected(graph, below("a/w"), never).graph) == {"w": {"a/w"}}
    assert selected(graph, below("b"), never).left_out == ["w"]


def test_a_custom_saver_goes_with_its_object():
    graph = ObjectGraph((Node(edges(a=1)), Node(saver="own")))
    assert selected(graph, never, never).graph.nodes[1].saver == ""


def test_a_list_that_loses_a_member_loses_its_type():
    graph = ObjectGraph(
        (
            Node(edges(l=1)),
            Node((Edge("0", 2), Edge("1", 3)), python="list"),
            *(Node(values=value(each)) for each in "ab"),
        )
    )
    assert selected(graph, below("l/0"), never).graph.nodes[1].python == ""
    assert selected(graph, below("l"), never).graph.nodes[1].python == "list"


@st.composite
def graphs(draw):
    count = draw(st.integers(2, 8))
    nodes = []
    for number in range(count):
        children = draw(st.dictionaries(st.sampled_from("abc"), st.integers(1, count - 1), max_size=3))
        values = value(str(number)) if number and draw(st.booleans()) else ()
        nodes.append(Node(tuple(Edge(*each) for each in children.items()), values))
    return ObjectGraph(tuple(nodes))


def simple_paths(graph):
    """Each way from the root to a value that passes no node twice."""
    found, pending = {}, [((0,), "")]
    while pending:
        way, path = pending.pop()
        for each in graph.nodes[way[-1]].values:
            found.setdefault(each.key, set()).add(path)
        for name, child in graph.nodes[way[-1]].children:
            if child not in way:
                pending.append(((*way, child), f"{path}/{name}".strip("/")))
    return found


@hypothesis.given(graphs(), st.sets(st.text("abc", min_size=1, max_size=3).map("/".join), max_size=3))
def test_a_value_stays_if_one_of_its_names_is_taken(graph, names):
    takes = below(*names)
    found = selected(graph, takes, never)
    expected = {key for key, paths in simple_paths(graph).items() if any(map(takes, paths))}
    assert simple_paths(found.graph).keys() == expected
    reachable = simple_paths(graph).keys()
    assert set(found.left_out) == reachable - expected


def test_many_names_of_one_object_take_no_time():
    # 2 ** 40 ways lead to the last node
    nodes = [Node((Edge("a", number + 1), Edge("b", number + 1))) for number in range(40)]
    graph = ObjectGraph((*nodes, Node(values=value("w"))))
    assert selected(graph, never, never).left_out == ["w"]


@pytest.mark.parametrize("depth", [5000])
def test_a_long_chain_is_selected_in_one_pass(depth):
    nodes = [Node((Edge("n", number + 1),)) for number in range(depth)]
    graph = ObjectGraph((*nodes, Node(values=value("w"))))
    assert selected(graph, lambda path: True, never).graph.nodes == graph.nodes
