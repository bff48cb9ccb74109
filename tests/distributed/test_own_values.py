"""What a process takes if every process has saved its own values."""

import pytest

from milepost.distributed.own_values import graph_of_process, refuse_another_number
from milepost.errors import MismatchError, UnrestoredWarning
from milepost.graph.keys import OwnName
from milepost.graph.saved.object_graph import Node, ObjectGraph, SavedValue


def value(name, *, skipped=True):
    return SavedValue(name, "", f"path/.ATTRIBUTES/{name}", skipped)


def own(rank, size=2, kind="random"):
    return value(str(OwnName("state", kind, rank, size)))


def taken(values, rank, size):
    """The names that a process sees of these values of one node."""
    return [
        each.name
        for each in graph_of_process(ObjectGraph((Node(values=values),)), "ckpt", rank, size).graph.nodes[0].values
    ]


def test_each_process_takes_its_own_value_and_those_of_all():
    assert taken((value("x"), own(0), own(1)), 1, 2) == ["x", "state"]


def test_a_value_that_tensorflow_sees_is_of_all_processes_whatever_its_name():
    shared = own(0)._replace(skipped_by_tensorflow=False)
    assert taken((shared,), 1, 2) == [shared.name]


def test_random_state_is_taken_also_by_more_processes_and_the_others_keep_theirs():
    graph = ObjectGraph((Node(values=(own(0, size=1),)),))
    with pytest.warns(UnrestoredWarning, match="process 1 keeps its own random state in: path"):
        found = graph_of_process(graph, "ckpt", 1, 2)
    assert found.graph.nodes[0].values == ()
    assert found.kept == {0: {"state"}}


def test_positions_in_data_are_refused_for_another_number_of_processes():
    values = (own(0, kind="data"), own(1, kind="data"))
    assert taken(values, 0, 3) == [each.name for each in values]
    with pytest.raises(MismatchError, match="a different number of processes"):
        refuse_another_number(values, 0, 3)


def test_a_graph_without_such_values_stays_the_same():
    graph = ObjectGraph((Node(values=(value("x"),)),))
    assert graph_of_process(graph, "ckpt", 0, 2).graph is graph
