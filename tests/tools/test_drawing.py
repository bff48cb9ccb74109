"""`milepost.draw_graph` draws live objects and checkpoints."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, SlotOwner, Variable, draw_graph
from milepost.storage import MemoryStorage
from milepost.tools.cli import main


def training():
    """A checkpoint with a variable, an optimizer and its slot variable."""
    optimizer = SlotOwner()
    net = Checkpoint(w=Variable(np.zeros((2, 3), np.float32)))
    optimizer.add_slot(net.w, "momentum")
    return Checkpoint(net=net, optimizer=optimizer, step=7)


def test_a_checkpoint_is_drawn_as_the_command_draws_it(tmp_path):
    path = training().save(tmp_path / "ckpt")
    for name in ("graph.svg", "graph.dot"):
        assert main(["graph", path, "-o", str(tmp_path / f"command-{name}")]) == 0
        draw_graph(path).write(tmp_path / name)
        assert (tmp_path / name).read_text() == (tmp_path / f"command-{name}").read_text()


def test_a_live_object_is_drawn_as_the_checkpoint_that_a_write_of_it_makes(tmp_path):
    live = training()
    assert draw_graph(live).picture == draw_graph(live.write(tmp_path / "ckpt")).picture


def test_a_drawing_of_a_live_object_writes_no_file_and_does_not_count_as_a_save(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    live = training()
    draw_graph(live)
    assert list(tmp_path.iterdir()) == []
    assert live.save(tmp_path / "ckpt").endswith("ckpt-1")


def test_a_manager_means_its_checkpoint(tmp_path):
    live = training()
    drawing = draw_graph(CheckpointManager(live, tmp_path, max_to_keep=1))
    assert drawing.picture == draw_graph(live).picture


def test_an_object_that_is_no_checkpoint_is_the_root_of_its_drawing():
    class Net(milepost.Module):
        def __init__(self):
            self.w = Variable(1.0)

    drawing = draw_graph(Net())
    assert [node.label for node in drawing.picture.nodes] == ["", "float32[]"]
    assert "Net'" in repr(drawing)


def test_a_directory_means_its_latest_checkpoint(tmp_path):
    manager = CheckpointManager(training(), tmp_path, max_to_keep=2)
    manager.save()
    latest = manager.save()
    assert draw_graph(tmp_path).of == latest


def test_a_checkpoint_in_another_storage():
    storage = MemoryStorage()
    live = training()
    live.write("ckpt", milepost.CheckpointOptions(storage=storage))
    assert draw_graph("ckpt", options=milepost.CheckpointOptions(storage=storage)).picture == draw_graph(live).picture


def test_a_notebook_shows_a_drawing():
    assert ET.fromstring(draw_graph(training())._repr_svg_()).tag.endswith("svg")


def test_a_part_of_a_graph():
    assert [node.label for node in draw_graph(training(), root="net").picture.nodes] == ["", "float32[2,3]"]


def test_what_has_no_room_is_folded_and_counted():
    live = Checkpoint(net=Checkpoint(**{f"w{number}": Variable(0.0) for number in range(100)}))
    assert (
        repr(draw_graph(live, limit=2, everything=True))
        == "<milepost.Drawing 'milepost.Checkpoint': 2 nodes, 1 edge, 100 more objects folded>"
    )


def test_an_object_that_cannot_be_saved_is_refused():
    with pytest.raises(milepost.UntrackableError, match="cannot be saved"):
        draw_graph(object())


def test_of_a_file_without_an_object_graph_the_names_are_drawn(tmp_path):
    np.savez(tmp_path / "state.npz", **{"net/w": np.zeros(3)})
    drawing = draw_graph(tmp_path / "state.npz")
    assert not drawing.has_graph
    assert [edge.name for edge in drawing.picture.edges] == ["net", "w"]
    assert f"Names in {tmp_path / 'state.npz'}" in drawing.svg


def test_a_path_that_no_object_has_is_an_error():
    with pytest.raises(milepost.KeyNotFoundError, match="start the path with one of: net"):
        draw_graph(training(), root="nte")


@pytest.mark.parametrize("arguments", [{"limit": 0}, {"depth": -1}])
def test_a_number_out_of_range_is_an_error(arguments):
    with pytest.raises(milepost.ArgumentError, match="must be at least"):
        draw_graph(training(), **arguments)


def test_a_number_that_is_not_whole_is_an_error():
    with pytest.raises(milepost.UnsupportedError, match="a whole number from 1 on, or None"):
        draw_graph(training(), limit=1.5)


def test_a_file_of_another_kind_is_not_written(tmp_path):
    with pytest.raises(milepost.ArgumentError, match=r"ends in \.svg or \.dot"):
        draw_graph(training()).write(tmp_path / "graph.png")
    assert list(tmp_path.iterdir()) == []
