"""Slot variables that Keras keeps in lists: which are found, in files of TensorFlow and of milepost, and what is not taken for one."""

import pytest

import milepost
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph, SavedValue
from milepost.restoring.load import read_object_graph
from milepost.tools.drawing.keras_slots import KerasSlot, keras_slots
from milepost.tools.drawing.picture import SLOT, VARIABLE, picture_of
from milepost.tools.named import open_named
from milepost.tools.report.outline import outline_of
from milepost.tools.values.tensors import rows_of

STATES = {
    "keras": ["momentum of d/kernel", "momentum of d/bias", "velocity of d/kernel", "velocity of d/bias"],
    "tf_keras": ["m of d/kernel", "m of d/bias", "v of d/kernel", "v of d/bias"],
}

LISTS = {
    "Adadelta": 2,
    "Adagrad": 1,
    "Adam": 2,
    "AdamW": 2,
    "Adamax": 2,
    "Ftrl": 2,
    "Lion": 1,
    "Nadam": 2,
    "RMSprop": 1,
}
"""How many lists the optimizers have whose state is named after variables."""


def variable(name):
    return Node(values=(SavedValue("VARIABLE_VALUE", name, name),))


def graph_of(lists, model=("d/kernel", "d/bias"), optimizer=(), also=()):
    """A graph of a model, and of an optimizer with lists of variables and variables of its own. All variables are given by their names.

    Args:
        lists: The lists of the optimizer, by the names of edges.
        model: The variables of the model.
        optimizer: The other variables of the optimizer.
        also: Variables of the optimizer's lists that something else holds too.
    """
    nodes, edges = [], {"net": [], "optimizer": [Edge("_iterations", 3)], "elsewhere": []}

    def add(node, name, *owners):
        for owner in owners:
            owner.append(Edge(name, 4 + len(nodes)))
        nodes.append(node)

    for name in model:
        add(variable(name), name, edges["net"])
    for name in optimizer:
        add(variable(name), name, edges["optimizer"])
    for attribute, names in lists.items():
        members = []
        for place, name in enumerate(names):
            add(variable(name), str(place), members, *([edges["elsewhere"]] if name in also else []))
        add(Node(tuple(members)), attribute, edges["optimizer"])
    add(Node(tuple(edges["elsewhere"])), "elsewhere", edges["net"])
    root = Node((Edge("net", 1), Edge("optimizer", 2)))
    fixed = root, Node(tuple(edges["net"])), Node(tuple(edges["optimizer"])), variable("a/iteration")
    return ObjectGraph((*fixed, *nodes))


def found(graph):
    return [f"{name} of {graph.nodes[owner].values[0].full_name}" for _, owner, name in keras_slots(graph)]


@pytest.mark.parametrize("library", ["tensorflow", "milepost"])
@pytest.mark.parametrize("generation", ["keras", "tf_keras"])
def test_adam_of_each_generation(generation, library, tmp_path):
    path = trained(generation, library, tmp_path / "ckpt")
    with open_named(path) as reader:
        graph, rows = read_object_graph(reader), rows_of(reader)
    assert not any(node.slots for node in graph.nodes), "the file lists no slot variables"
    names = [name.replace(" of sequential/", " of ") for name in found(graph)]
    assert sorted(names) == sorted(STATES[generation])
    slots = {graph.nodes[each.slot].values[0].key for each in keras_slots(graph)}
    outline = outline_of(rows, graph)
    assert {rows[row.tensor].key for row in outline.rows if row.role == SLOT} == slots
    picture = milepost.draw_graph(path, limit=1000, everything=True).picture
    assert sum(node.role == SLOT for node in picture.nodes) == 4
    dashed = [
        (picture.nodes[edge.source].role, picture.nodes[edge.target].role) for edge in picture.edges if edge.dashed
    ]
    assert dashed == [(VARIABLE, SLOT)] * 4


@pytest.mark.parametrize("library", ["tensorflow", "milepost"])
@pytest.mark.parametrize("generation", ["keras", "tf_keras"])
def test_no_optimizer_has_a_plain_variable_that_counts_as_a_slot_variable(generation, library, tmp_path):
    keras = pytest.importorskip(generation)
    plain = {"iteration", "learning_rate", "variable"}
    for name, lists in LISTS.items():
        optimizer = getattr(keras.optimizers, name)(learning_rate=0.1)
        with open_named(trained(generation, library, tmp_path / name, optimizer)) as reader:
            graph = read_object_graph(reader)
        slots = [graph.nodes[each.slot].values[0].full_name for each in keras_slots(graph)]
        own = {each.values[0].full_name for each in graph.nodes if each.values}
        assert {each for each in own if each.rpartition("/")[2].lower() in plain}.isdisjoint(slots), name
        assert len(slots) == 2 * lists, name


def trained(generation, library, path, optimizer=None):
    """The path of a checkpoint of a model after one step of Adam."""
    keras, tf = pytest.importorskip(generation), pytest.importorskip("tensorflow")
    if generation == "keras" and keras.backend.backend() != "tensorflow" and library == "tensorflow":
        pytest.skip("tf.train.Checkpoint takes Keras 3 with the backend TensorFlow only")
    model = keras.Sequential([keras.layers.Dense(2, name="d")], name="sequential")
    model.build((None, 3))
    optimizer = keras.optimizers.Adam(0.1) if optimizer is None else optimizer
    variables = model.trainable_variables
    optimizer.apply_gradients([(each * 0 + 1.0, each) for each in variables])
    kind = tf.train.Checkpoint if library == "tensorflow" else milepost.Checkpoint
    return kind(net=model, optimizer=optimizer).write(str(path))


def test_a_slot_variable_has_a_dashed_edge_from_its_variable():
    graph = graph_of({"_momentums": ["a/d_kernel_momentum", "a/d_bias_momentum"]})
    picture = picture_of(graph, {})
    assert [edge.name for edge in picture.edges if edge.dashed] == ["momentum"] * 2


def test_names_that_begin_alike_are_told_apart_by_the_word_that_all_have():
    graph = graph_of({"m": ["a/d_kernel_m", "a/d_kernel_b_m"]}, ["d/kernel", "d/kernel/b"])
    assert found(graph) == ["m of d/kernel", "m of d/kernel/b"]


def test_a_list_is_a_state_only_as_a_whole():
    assert found(graph_of({"m": ["a/d_kernel_momentum", "a/product"]})) == []


@pytest.mark.parametrize("name", ["product", "a/u_product", "a/d_kernel", "d/kernel", "a/d_kernel_"])
def test_a_plain_variable_in_a_list_is_none(name):
    assert found(graph_of({"m": [name]}, ["d/kernel", "u"])) == []


def test_members_with_different_words_are_none():
    assert found(graph_of({"m": ["a/d_kernel_momentum", "a/d_bias_velocity"]})) == []


def test_two_members_for_one_variable_are_none():
    assert found(graph_of({"m": ["a/d_kernel_momentum", "b/d_kernel_momentum"]})) == []


def test_a_variable_of_the_optimizer_that_is_in_no_list_is_none():
    assert found(graph_of({}, ["u"], optimizer=["a/u_product"])) == []


@pytest.mark.parametrize("attribute", ["_variables", "_trainable_variables"])
def test_the_lists_of_all_variables_are_none(attribute):
    assert found(graph_of({attribute: ["a/d_kernel_momentum", "a/d_bias_momentum"]})) == []


def test_a_variable_that_others_hold_too_is_none():
    names = ["a/d_kernel_momentum", "a/d_bias_momentum"]
    assert found(graph_of({"m": names}, also=names[:1])) == []


def test_variables_of_the_same_name_leave_open_whose_it_is():
    graph = graph_of({"m": ["a/d_kernel_momentum", "a/d_bias_momentum"]}, ["d/kernel", "d/kernel", "d/bias"])
    assert [(type(each.variable), each.name) for each in keras_slots(graph)] == [
        (type(None), "momentum"),
        (int, "momentum"),
    ]
    assert isinstance(keras_slots(graph)[0], KerasSlot)


def test_an_object_that_is_no_optimizer_has_none():
    graph = graph_of({"m": ["a/d_kernel_momentum", "a/d_bias_momentum"]})
    optimizer = Node(graph.nodes[2].children[1:])
    assert keras_slots(ObjectGraph((*graph.nodes[:2], optimizer, *graph.nodes[3:]))) == []


def test_very_long_names_take_no_time():
    name = "_" * 1_000_000
    assert found(graph_of({"m": [f"a/{name}_m", f"b/{name}_m"]}, [name])) == []


def test_a_list_that_many_optimizers_share_takes_no_time():
    """One optimizer after the other would look at it, which takes the square of the size of the file."""
    count = 30_000
    optimizer = Node((Edge("_iterations", 1), Edge("m", 2)))
    members = [Edge(str(place), 3 + count + place) for place in range(count)]
    root = Node(tuple(Edge(str(place), 3 + place) for place in range(count)))
    variables = [variable(f"a/d_kernel_{place}") for place in range(count)]
    assert keras_slots(ObjectGraph((root, variable("i"), Node(tuple(members)), *[optimizer] * count, *variables))) == []
