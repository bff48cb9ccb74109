"""Checkpoints of runs that lost values are refused where they would go on with them."""

import numpy as np
import pytest

from milepost.errors import MismatchError
from milepost.graph.contract.operation import Operation
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph, SavedValue
from milepost.restoring.lost_values import refuse_lost_values
from tests.bundle.bundles import bundle
from tests.objects import module


def node(*children):
    return Node(children=tuple(Edge(name, number) for name, number in children))


def value(name):
    return Node(values=(SavedValue("VARIABLE_VALUE", name, f"{name}/.ATTRIBUTES/VARIABLE_VALUE"),))


GRAPH = ObjectGraph(
    (
        node(("model", 1), ("trainer", 2)),
        node(("kernel", 6)),
        node(("optimizer", 3)),
        node(("_trainable_variables", 4), ("_momentums", 5)),
        node(("0", 6), ("1", 7)),  # the second is held by no layer
        node(("0", 8), ("1", 9)),
        value("kernel"),
        value("kernel"),
        value("kernel_momentum"),
        value("kernel_momentum"),
    )
)


def refuse(root):
    with bundle({"a": np.zeros(2)}) as reader:
        refuse_lost_values(reader, GRAPH, Operation(root))


def test_the_optimizer_of_such_a_run_is_refused_at_any_depth():
    with pytest.raises(MismatchError, match="had lost values") as caught:
        refuse(module(trainer=module(optimizer=module())))
    assert caught.value.found == "two for one variable, both named 'kernel_momentum'"


def test_a_program_without_the_optimizer_takes_the_rest():
    refuse(module(model=module(), trainer=module()))
