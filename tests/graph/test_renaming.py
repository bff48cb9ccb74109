"""Parts of an object graph move to other names, and everything else stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import UnsupportedError
from milepost.graph.keys import escape
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph, SavedValue, SlotReference
from milepost.graph.saved.renaming import Move, moves, renamed

NAMES = st.sampled_from(["a", "b", "c", "layers", "0", "1", "a.b", "c/d"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(tuple)


def graph_of(paths):
    """A graph with a value at each path."""
    nodes = [({}, [])]
    for path in paths:
        at = 0
        for name in path:
            if name not in nodes[at][0]:
                nodes.append(({}, []))
                nodes[at][0][name] = len(nodes) - 1
            at = nodes[at][0][name]
        nodes[at][1].append(SavedValue("VALUE", "", text(path)))
    return ObjectGraph(
        tuple(Node(tuple(Edge(*pair) for pair in edges.items()), tuple(values)) for edges, values in nodes)
    )


def text(path):
    return "/".join(map(escape, path))


def values_of(graph):
    """The key of each value, by the path to it."""
    found, pending = {}, [((), 0)]
    while pending:
        path, number = pending.pop()
        for value in graph.nodes[number].values:
            assert path not in found
            found[path] = value.key
        pending += [((*path, edge.name), edge.node) for edge in graph.nodes[number].children]
    return found


@given(st.dictionaries(PATHS, st.none() | PATHS, max_size=8), st.sets(PATHS, max_size=4))
def test_each_value_has_its_new_name_and_no_other(targets, unchanged):
    targets = {**{path: path for path in unchanged}, **targets}
    kept = [target for target in targets.values() if target is not None]
    by_text = {text(path): None if target is None else text(target) for path, target in targets.items()}
    graph = graph_of(targets)
    if len(set(kept)) < len(kept):
        with pytest.raises(UnsupportedError, match="the same name"):
            renamed(graph, by_text.__getitem__)
        return
    new, left_out = renamed(graph, by_text.__getitem__)
    assert values_of(new) == {target: text(path) for path, target in targets.items() if target is not None}
    assert left_out == sorted(text(path) for path, target in targets.items() if target is None)


@given(st.dictionaries(PATHS, PATHS, max_size=8))
def test_nothing_moves_where_no_name_changes(targets):
    assert moves({path: path for path in targets}) == []


def test_what_moves_together_moves_as_a_whole():
    targets = {("net", "l1", "w"): ("model", "l1", "w"), ("net", "l2", "w"): ("model", "l2", "w"), ("n",): ("n",)}
    assert moves(targets) == [Move(("net",), ("model",))]


def test_two_objects_can_exchange_their_names():
    graph = graph_of([("a", "w"), ("b", "w")])
    new, _ = renamed(graph, lambda name: {"a/w": "b/w", "b/w": "a/w"}[name])
    assert values_of(new) == {("a", "w"): "b/w", ("b", "w"): "a/w"}


def test_a_list_that_loses_a_member_is_no_whole_list_any_more():
    """A restore would cut the live list to the saved length."""
    graph = graph_of([("l", "0"), ("l", "1")])
    graph = ObjectGraph((graph.nodes[0], graph.nodes[1]._replace(python="list"), *graph.nodes[2:]))
    new, _ = renamed(graph, lambda name: None if name == "l/1" else name)
    assert [node.python for node in new.nodes] == ["", "", "", ""]


def slots():
    """A variable, an optimizer with a counter, and a slot variable that belongs to both."""
    value = Node((), (SavedValue("VALUE", "", "w"),))
    optimizer = Node((Edge("count", 3),), (), (SlotReference(1, "m", 4),))
    count, slot = Node((), (SavedValue("VALUE", "", "opt/count"),)), Node((), (SavedValue("VALUE", "", "slot"),))
    return ObjectGraph((Node((Edge("w", 1), Edge("opt", 2))), value, optimizer, count, slot))


def test_slot_variables_follow_their_variable_and_their_optimizer():
    new, _ = renamed(slots(), lambda name: {"w": "net/w", "opt/count": "optimizer/count"}[name])
    assert values_of(new) == {("net", "w"): "w", ("optimizer", "count"): "opt/count"}
    assert [node.slots for node in new.nodes if node.slots] == [(SlotReference(1, "m", 4),)]


def test_slot_variables_follow_an_optimizer_of_which_a_value_is_left_out():
    graph = slots()
    optimizer = graph.nodes[2]._replace(children=(Edge("count", 3), Edge("rate", 5)))
    rate = Node((), (SavedValue("VALUE", "", "opt/rate"),))
    graph = ObjectGraph((*graph.nodes[:2], optimizer, *graph.nodes[3:], rate))
    new, _ = renamed(graph, lambda name: {"w": "w", "opt/count": "new/count", "opt/rate": None}[name])
    assert values_of(new) == {("w",): "w", ("new", "count"): "opt/count"}
    assert dict(new.nodes[0].children)["new"] == next(number for number, node in enumerate(new.nodes) if node.slots)


@pytest.mark.parametrize("left_out", ["w", "opt"])
def test_slot_variables_of_what_is_left_out_are_left_out(left_out):
    new, keys = renamed(slots(), lambda name: None if name.startswith(left_out) else name)
    assert "slot" in keys
    assert not any(node.slots for node in new.nodes)


def test_a_value_that_several_names_lead_to_is_left_out_by_all_of_them():
    value = Node((), (SavedValue("VALUE", "", "a"),))
    graph = ObjectGraph((Node((Edge("a", 1), Edge("b", 1))), value))
    new, keys = renamed(graph, lambda _: None)
    assert (values_of(new), keys) == ({}, ["a"])
