"""How saved values are found for live objects."""

import numpy as np

from milepost import Checkpoint, Variable
from milepost.graph.keys import OBJECT_GRAPH
from milepost.graph.object_graph import Edge, Node, ObjectGraph, SavedValue
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
