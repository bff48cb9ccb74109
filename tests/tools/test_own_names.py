"""The names that layers and variables have themselves are shown where the names that lead to them say less."""

import numpy as np
import pytest

import milepost
from milepost import Checkpoint
from milepost.graph.saved.object_graph import Edge, Node, ObjectGraph, SavedValue
from milepost.tools.drawing.picture import picture_of
from milepost.tools.tree import folded, tree_of
from milepost.tools.values.tensors import rows_of
from tests.tools.commands import json_of, output_of
from tests.tools.test_report import data_of, page


def keras_3():
    keras = pytest.importorskip("keras")
    if keras.__version__.startswith("2."):
        pytest.skip("Keras 2 keeps no own names in files")
    return keras


def model():
    keras = keras_3()
    inside = keras.Input((3,))
    outside = keras.layers.Dense(2, name="head")(keras.layers.Dense(4, name="dense")(inside))
    return keras.Model(inside, outside)


@pytest.fixture(params=["m.keras", "m.weights.h5"])
def path(request, tmp_path):
    made = model()
    (made.save if request.param.endswith(".keras") else made.save_weights)(tmp_path / request.param)
    return tmp_path / request.param


def lines(capsys, *arguments, status=0):
    return [line.split() for line in output_of(capsys, *arguments, status=status).out.splitlines()]


def test_a_list_has_a_column_of_layers(path, capsys):
    _, header, *rows = lines(capsys, "show", path)
    assert header == ["TYPE", "BYTES", "LAYER", "KEY"]
    assert ["float32[4,2]", "32", "head", "layers/dense_1/vars/0"] in rows
    assert ["float32[3,4]", "48", "layers/dense/vars/0"] in rows, "whose own name is the same"


def test_a_tree_has_them_in_brackets(path, capsys):
    _, _, *rows = lines(capsys, "show", "--tree", path)
    assert ["dense_1", "(head)"] in rows
    assert ["dense"] in rows


def test_json_has_them_by_path(path, capsys):
    assert json_of(capsys, "show", path)["layer_names"] == {"layers/dense_1": "head"}


def test_one_tensor_has_its_layer(path, capsys):
    assert ["layer:", "head"] in lines(capsys, "show", path, "layers/dense_1/vars/0")


def test_a_layer_without_variables_of_its_own_has_its_name(tmp_path, capsys):
    keras = keras_3()
    inside = keras.Input((5, 3))
    outside = keras.layers.Bidirectional(keras.layers.LSTM(4), name="encoder")(inside)
    keras.Model(inside, outside).save_weights(tmp_path / "m.weights.h5")
    names = json_of(capsys, "show", tmp_path / "m.weights.h5")["layer_names"]
    assert names["layers/bidirectional"] == "encoder"


def test_a_comparison_has_a_column_of_layers(path, tmp_path, capsys):
    keras = keras_3()
    other = tmp_path / "other.weights.h5"
    changed = model()
    changed.load_weights(path) if path.suffix == ".h5" else changed.set_weights(
        keras.models.load_model(path).get_weights()
    )
    changed.layers[-1].kernel.assign_add(np.ones((4, 2)))
    changed.save_weights(other)
    rows = lines(capsys, "diff", path, other, status=1)
    (found,) = [row for row in rows if row and row[-1] == "layers/dense_1/vars/0"]
    assert found[-2] == "head"


def test_a_hostile_name_is_text(tmp_path, capsys):
    h5py = pytest.importorskip("h5py")

    model().save_weights(path := tmp_path / "m.weights.h5")
    with h5py.File(path, "r+") as file:
        file["layers/dense_1/vars"].attrs["name"] = "a\x1b[2J\nb<script>"
    told = output_of(capsys, "show", path).out
    assert r"a\x1b[2J\nb<script>" in told
    assert "\x1b" not in told


@pytest.mark.parametrize("attribute", [7, [b"a", b"b"], b"", np.zeros(3)])
def test_what_is_no_name_is_passed_over(tmp_path, capsys, attribute):
    h5py = pytest.importorskip("h5py")

    model().save_weights(path := tmp_path / "m.weights.h5")
    with h5py.File(path, "r+") as file:
        file["layers/dense_1/vars"].attrs["name"] = attribute
    assert json_of(capsys, "show", path)["layer_names"] == {}


def graph_of(own_name):
    values = (SavedValue("VARIABLE_VALUE", own_name, "k"),)
    return ObjectGraph(
        (Node((Edge("layers", 1),)), Node((Edge("0", 2),)), Node((Edge("kernel", 3),)), Node(values=values))
    )


@pytest.mark.parametrize(
    ("own_name", "label"),
    [
        ("head/kernel", "float32[2] (head/kernel)"),
        ("kernel", "float32[2]"),
        ("layers/kernel", "float32[2]"),
        ("Variable", "float32[2]"),
        ("Variable_3:0", "float32[2]"),
        ("", "float32[2]"),
        ("a\nb", r"float32[2] (a\nb)"),
    ],
)
def test_a_picture_has_the_own_name_of_a_variable(own_name, label):
    assert picture_of(graph_of(own_name), {"k": "float32[2]"}).nodes[-1].label == label


def test_a_picture_of_a_checkpoint_of_keras_names_its_layers(tmp_path):
    path = Checkpoint(model=model()).write(tmp_path / "ckpt")
    labels = [node.label for node in milepost.draw_graph(path).picture.nodes]
    assert "float32[4,2] (head/kernel)" in labels


def test_the_rest_of_a_picture_is_what_holds_nothing():
    """Of many children, those that hold values are drawn first."""
    full = ObjectGraph(
        (
            Node((*(Edge(f"empty{number}", 1 + number) for number in range(20)), Edge("layer", 21))),
            *(Node() for _ in range(20)),
            Node((Edge("kernel", 22),)),
            Node(values=(SavedValue("VARIABLE_VALUE", "", "k"),)),
        )
    )
    picture = picture_of(full, {"k": "float32[2]"}, limit=12)
    assert [edge.name for edge in picture.edges if edge.source == 0] == ["layer", "empty0 … empty19"]
    assert "float32[2]" in [node.label for node in picture.nodes]


def test_a_report_has_them_in_its_tree(path, tmp_path):
    outline = data_of(page(tmp_path, path))["outline"]
    assert [outline["name"][int(place)] for place, name in outline["own"].items() if name == "head"] == ["dense_1"]


def test_a_tree_is_in_natural_order(tmp_path):
    path = Checkpoint(layers=[milepost.Variable(float(number)) for number in range(12)]).write(tmp_path / "ckpt")
    with milepost.CheckpointReader(path) as reader:
        names = [line.name for line in folded(tree_of(rows_of(reader._bundle)), None, None)]
    assert [name for name in names if name.isdecimal()] == [str(number) for number in range(12)]
