"""`milepost graph` draws."""

import json
import pathlib
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, Variable
from milepost.tools.cli import main
from tests.tools.commands import json_of, output_of

DATA = pathlib.Path(__file__).parents[1] / "data" / "tf115"


@pytest.fixture
def saved(tmp_path):
    return Checkpoint(v=Variable(np.arange(6.0).reshape(2, 3)), s=Variable("text")).save(tmp_path / "ckpt")


def test_an_svg(saved, tmp_path, capsys):
    assert "4 nodes" in output_of(capsys, "graph", saved, "-o", tmp_path / "graph.svg").out
    assert ET.parse(tmp_path / "graph.svg").getroot().tag.endswith("svg")


def test_dot(saved, tmp_path):
    assert main(["graph", saved, "-o", str(tmp_path / "graph.dot")]) == 0
    assert (tmp_path / "graph.dot").read_text().startswith("digraph")


def test_another_format_is_a_wrong_argument(saved, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["graph", saved, "-o", str(tmp_path / "graph.png")])
    assert (ended.value.code, "FILE.svg" in capsys.readouterr().err) == (2, True)
    assert not (tmp_path / "graph.png").exists()


def test_a_part_to_the_output(saved, capsys):
    assert "save_counter" not in output_of(capsys, "graph", saved, "--root", "v").out


def test_json(saved, capsys):
    found = json_of(capsys, "graph", saved)
    assert [node["role"] for node in found["nodes"]] == ["object", "variable", "variable", "variable"]
    assert {edge["name"] for edge in found["edges"]} == {"v", "s", "save_counter"}


def test_a_picture_that_cannot_be_written_is_an_error(saved, tmp_path, capsys):
    assert main(["graph", saved, "-o", str(tmp_path / "no" / "graph.svg")]) == 3
    assert "graph.svg" in capsys.readouterr().err


@pytest.mark.parametrize("depth", ["-1", "two", "1.5"])
def test_a_depth_is_a_whole_number(saved, depth, capsys):
    with pytest.raises(SystemExit):
        main(["graph", saved, "--depth", depth])
    assert f"expected 0 or a larger whole number, found {depth!r}" in capsys.readouterr().err


def test_the_names_of_a_file_of_another_library_are_drawn(tmp_path, capsys):
    names = ["layers.2.weight", "layers.10.weight", "layers.10.bias", "head"]
    entries = {
        name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * place, 4 * place + 4]}
        for place, name in enumerate(names)
    }
    header = json.dumps(entries).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    found = json_of(capsys, "graph", path)
    assert not found["object_graph"]
    assert [edge["name"] for edge in found["edges"]] == ["head", "layers", "2", "10", "weight", "bias", "weight"]
    assert [node["label"] for node in found["nodes"]].count("float32[1]") == 4
    assert "Names in" in output_of(capsys, "graph", path).out


@pytest.mark.parametrize("root", ["layers.10", "layers/10"])
def test_a_part_of_the_names_is_drawn(tmp_path, capsys, root):
    torch = pytest.importorskip("torch")
    torch.save({f"layers.{number}.w": torch.zeros(2) for number in range(11)}, tmp_path / "a.pt")
    assert [edge["name"] for edge in json_of(capsys, "graph", tmp_path / "a.pt", "--root", root)["edges"]] == ["w"]


def test_the_names_of_a_checkpoint_of_tensorflow_1_are_drawn(capsys):
    found = json_of(capsys, "graph", DATA / "v1" / "ckpt")
    assert not found["object_graph"]
    assert "variable" in {node["role"] for node in found["nodes"]}


def test_an_object_graph_is_drawn_as_such(saved, capsys):
    assert json_of(capsys, "graph", saved)["object_graph"]


def test_a_path_that_is_not_there_offers_a_few_names(tmp_path, capsys):
    path = milepost.save(tmp_path / "state", {"w" * 1000: 1} | {f"layer{number}": number for number in range(100)})
    for wanted, offered in (("lyaer7/w", "layer7"), ("other", "...")):
        error = output_of(capsys, "graph", path, "--root", wanted, status=3).err
        assert f"{offered}" in error
        assert len(error) < 500
