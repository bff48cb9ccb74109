"""`milepost verify` passes over no damage."""

import os
import pathlib
import shutil

import pytest

import milepost
from milepost import Checkpoint, Variable
from milepost.tools.cli import main
from tests.tools.commands import damage, json_of, series


@pytest.fixture
def paths(tmp_path):
    return series(tmp_path / "run", [0.3, 0.2, 0.1])


def test_a_whole_one(paths, capsys):
    assert main(["verify", paths[0]]) == 0
    assert capsys.readouterr().out == f"{paths[0]}: 4 tensors, all checksums correct\n"


def test_damage_is_found(paths, capsys):
    data = damage(paths[0])
    assert main(["verify", paths[0]]) == 1
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert data in message


def test_a_part_of_a_checkpoint_is_not_called_damaged(paths, capsys):
    for command in ("verify", "ls"):
        assert main([command, f"{paths[0]}.data-00000-of-00001"]) == 3
        found = capsys.readouterr()
        assert f"remedy: pass {paths[0]!r}" in found.err
        assert "damaged" not in found.out + found.err


def test_all_checkpoints_of_a_directory(paths, capsys):
    assert main(["verify", os.path.dirname(paths[0])]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == paths[::-1]


@pytest.mark.parametrize("damaged", range(3))
def test_no_damage_in_a_directory_is_passed_over(paths, capsys, damaged):
    """Least of all that of the newest, of which an older good one would take the place."""
    data = damage(paths[damaged])
    assert main(["verify", os.path.dirname(paths[0])]) == 1
    captured = capsys.readouterr()
    assert data in captured.err
    lines = captured.out.splitlines()
    assert len(lines) == 3
    assert [line.endswith(": damaged") for line in lines].count(True) == 1
    assert f"{paths[damaged]}: damaged" in lines


def test_one_that_no_state_file_lists_is_verified_too(paths, capsys):
    other = Checkpoint(v=Variable(1.0)).write(os.path.join(os.path.dirname(paths[0]), "other"))
    data = damage(other)
    assert main(["verify", os.path.dirname(paths[0])]) == 1
    assert data in capsys.readouterr().err


def test_one_that_is_gone_is_missed(paths, capsys):
    for file in pathlib.Path(paths[2]).parent.glob("ckpt-30.*"):
        file.unlink()
    found = json_of(capsys, "verify", os.path.dirname(paths[0]), status=1)["checkpoints"]
    assert [(each["path"], each["state"]) for each in found] == [
        (paths[2], "missing"),
        (paths[1], "whole"),
        (paths[0], "whole"),
    ]


def test_json_says_what_is_damaged(paths, capsys):
    data = damage(paths[1], "net/w")
    found = json_of(capsys, "verify", paths[1], status=1)["checkpoints"][0]
    assert found["state"] == "damaged"
    assert found["error"]["file"] == data
    assert found["error"]["key"] == "net/w/.ATTRIBUTES/VARIABLE_VALUE"


def test_a_malformed_state_file_is_damage(paths, capsys):
    directory = os.path.dirname(paths[0])
    pathlib.Path(directory, "checkpoint").write_text("nonsense")
    assert main(["verify", directory]) == 1
    captured = capsys.readouterr()
    assert "malformed" in captured.err
    assert len(captured.out.splitlines()) == 3


def test_a_damaged_optimizer_beside_a_model_is_found(paths, tmp_path, capsys):
    (step := tmp_path / "trained" / "checkpoint-500").mkdir(parents=True)
    for name in ("model.safetensors", "optimizer.pt"):
        milepost.convert(paths[0], step / name)
    assert main(["verify", str(tmp_path / "trained")]) == 0
    with open(step / "optimizer.pt", "r+b") as file:
        file.truncate(200)
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "trained")]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{step / 'optimizer.pt'}: damaged",
        f"{step / 'model.safetensors'}: 2 tensors, all readable; no checksums were compared, so changed bytes may go unnoticed",
    ]


def test_a_directory_without_checkpoints_is_an_error(tmp_path, capsys):
    assert main(["verify", str(tmp_path)]) == 3
    assert capsys.readouterr().err.startswith("error: ")


def test_what_milepost_does_not_read_is_not_damage(tmp_path, capsys):
    (tmp_path / "weights.gz").write_bytes(b"\x1f\x8b\x08" + bytes(100))
    assert main(["verify", str(tmp_path / "weights.gz")]) == 3
    assert "gzip" in capsys.readouterr().err


def test_a_copy_is_verified_where_it_is(paths, tmp_path, capsys):
    shutil.copytree(os.path.dirname(paths[0]), tmp_path / "copy")
    damage(paths[2])
    assert main(["verify", str(tmp_path / "copy")]) == 0
    assert all(str(tmp_path / "copy") in line for line in capsys.readouterr().out.splitlines())
