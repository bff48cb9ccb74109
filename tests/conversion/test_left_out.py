"""A conversion keeps the record of what a save has left out, or says that it does not."""

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Variable
from tests.tools.commands import json_of, output_of


@pytest.fixture
def path(tmp_path):
    values = {name: Variable(np.full(2, number, np.float32)) for number, name in enumerate(["w", "b", "head"])}
    return Checkpoint(model=Checkpoint(**values)).write(tmp_path / "saved", CheckpointOptions(ignore=["*/b", "*/head"]))


def record(path):
    with milepost.load_checkpoint(path) as reader:
        left_out = reader._saved_with().left_out
    return sorted(key.partition("/.")[0] for key in left_out["values"])


def test_a_checkpoint_keeps_it_with_the_new_names(path, tmp_path):
    done = milepost.convert(path, tmp_path / "new", rename={"model": "net"})
    assert not done.not_carried_over
    assert record(tmp_path / "new") == ["net/b", "net/head"]
    live = Checkpoint(net=Checkpoint(**{name: Variable(np.zeros(2, np.float32)) for name in ("w", "b", "head")}))
    left_out = live.read(tmp_path / "new").expect_partial().report().left_out
    assert [entry.key.partition("/.")[0] for entry in left_out] == ["net/b", "net/head"]


@pytest.mark.parametrize("selection", [{"ignore": "model/head"}, {"only": ["model/w", "model/b"]}])
def test_a_part_of_it_has_a_part_of_the_record_and_names_no_typing_error(selection, path, tmp_path, recwarn):
    milepost.convert(path, tmp_path / "new", **selection)
    assert record(tmp_path / "new") == ["model/b"]
    assert not [each for each in recwarn if "names" in str(each.message)]


def test_metrics_and_metadata_stay_beside_it(tmp_path):
    options = CheckpointOptions(ignore="b")
    manager = CheckpointManager(Checkpoint(a=Variable(1.0), b=Variable(2.0)), tmp_path, 1, options=options)
    path = manager.save(1, metrics={"loss": 0.5}, metadata={"run": "a"}, files={"notes": b"1"})
    milepost.convert(path, tmp_path / "new", rename={"a": "c"})
    with milepost.load_checkpoint(tmp_path / "new") as reader:
        assert (reader.metrics(), reader.metadata(), reader.files()) == ({"loss": 0.5}, {"run": "a"}, {"notes": b"1"})
    assert record(tmp_path / "new") == ["b"]


def test_a_checkpoint_that_has_left_out_nothing_gets_no_record(tmp_path):
    path = CheckpointManager(Checkpoint(a=Variable(1.0)), tmp_path, 1).save(1, metrics={"loss": 0.5})
    milepost.convert(path, tmp_path / "new", rename={"a": "c"})
    with milepost.load_checkpoint(tmp_path / "new") as reader:
        assert reader._saved_with().left_out is None


@pytest.mark.parametrize("target", ["new.npz", "new.safetensors", "new.pt"])
def test_another_format_says_that_it_has_no_place_for_it(target, path, tmp_path):
    done = milepost.convert(path, tmp_path / target)
    (text,) = (each for each in done.not_carried_over if "left out" in each)
    assert text.startswith(
        "the record of what the save has left out: 2 values were left out when it was saved, by ignore="
    )


def test_commands_say_what_was_left_out(path, tmp_path, capsys):
    assert "2 values were left out when it was saved" in output_of(capsys, "convert", path, tmp_path / "new.npz").err
    left_out = json_of(capsys, "report", path)["checkpoints"][0]["left_out"]
    assert left_out == json_of(capsys, "show", path)["left_out"]
    assert left_out["ignore"] == ["*/b", "*/head"]
