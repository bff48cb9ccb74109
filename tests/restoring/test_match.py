"""How saved values are found for live objects."""

import numpy as np

from milepost import Checkpoint, Variable
from milepost.engine.report import Outcome
from milepost.graph.keys import OBJECT_GRAPH
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph, SavedValue
from milepost.storage import LocalStorage
from tests.bundle.bundles import write


def test_a_value_that_the_graph_lists_under_another_name_is_found_by_its_path(prefix):
    """TensorFlow lists those of iterators and tables so."""
    listed = SavedValue("OTHER", "", "v/.ATTRIBUTES/OTHER")
    graph = ObjectGraph((Node(children=(Edge("v", 1),)), Node(values=(listed,))))
    tensors = {"v/.ATTRIBUTES/VARIABLE_VALUE": np.float32(3), OBJECT_GRAPH: np.array(graph.serialize(), object)}
    write(LocalStorage(), prefix, tensors)
    live = Checkpoint(v=Variable(0.0))
    live.read(prefix).expect_partial()
    assert float(live.v) == 3


def test_an_object_of_two_saved_ones_takes_the_first_if_the_files_lack_the_value_of_the_second(prefix):
    values = [SavedValue("VARIABLE_VALUE", "", f"{name}/.ATTRIBUTES/VARIABLE_VALUE") for name in "vw"]
    nodes = (Node(children=(Edge("v", 1), Edge("w", 2))), *(Node(values=(value,)) for value in values))
    graph = np.array(ObjectGraph(nodes).serialize(), object)
    write(LocalStorage(), prefix, {values[0].key: np.float32(3), OBJECT_GRAPH: graph})
    variable = Variable(0.0)
    Checkpoint(v=variable, w=variable).read(prefix).expect_partial()
    assert float(variable) == 3


def test_a_saved_value_that_the_live_object_does_not_have_is_said_to_be_of_none(prefix):
    values = tuple(SavedValue(name, "", f"v/.ATTRIBUTES/{name}") for name in ("VARIABLE_VALUE", "OTHER"))
    graph = np.array(ObjectGraph((Node(children=(Edge("v", 1),)), Node(values=values))).serialize(), object)
    write(LocalStorage(), prefix, {OBJECT_GRAPH: graph, **{value.key: np.float32(3) for value in values}})
    report = Checkpoint(v=Variable(0.0)).read(prefix).expect_partial().report()
    notes = [entry.note for entry in report if entry.outcome is Outcome.UNEXPECTED]
    assert notes == ["the live object, of type Variable, holds no such value"]
