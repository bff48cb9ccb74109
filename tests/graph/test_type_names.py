"""The names of types in the object graph, from which a restore makes the members of lists and dicts."""

import numpy as np

from milepost import Checkpoint, Module, Variable
from milepost.graph.contract.operation import Operation
from milepost.graph.plain.type_names import type_names
from milepost.graph.traversal import walk


def names(root):
    operation = Operation(root)
    live = walk(operation)
    return dict(zip(live.paths, type_names(live, operation.held), strict=True))


def test_lists_and_dicts_of_arrays_have_names_and_their_arrays_too():
    assert names(Checkpoint(x=[{"a": np.zeros(2)}])) == {
        "": "Checkpoint",
        "x": "list",
        "x/0": "dict",
        "x/0/a": "numpy.ndarray",
    }


def test_a_list_with_other_objects_has_no_name_but_its_arrays_have_if_it_is_state():
    assert names(Checkpoint(x=[np.zeros(2), Variable(1.0)])) == {
        "": "Checkpoint",
        "x": "",
        "x/0": "numpy.ndarray",
        "x/1": "",
    }


def test_arrays_beside_other_objects_in_a_list_of_a_module_have_no_names():
    module = Module()
    module.x = [[np.zeros(2), Variable(1.0)], [np.zeros(3)]]
    assert names(module) == {
        "": "",
        "x": "",
        "x/0": "",
        "x/1": "list",
        "x/0/0": "",
        "x/0/1": "",
        "x/1/0": "numpy.ndarray",
    }


def test_a_container_with_other_objects_far_below_has_no_name():
    assert names(Checkpoint(x=[[[[Variable(1.0)]]]])) == dict.fromkeys(
        ("x", "x/0", "x/0/0", "x/0/0/0", "x/0/0/0/0"), ""
    ) | {"": "Checkpoint"}
