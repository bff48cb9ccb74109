"""The command line."""

import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointManager, Variable
from milepost.tools.cli import main, parser
from milepost.tools.manual import manual

COMMANDS = ["ls", "verify", "graph", "demo"]


@pytest.fixture
def saved(tmp_path):
    return Checkpoint(v=Variable(np.arange(6.0).reshape(2, 3)), s=Variable("text")).save(tmp_path / "ckpt")


def test_ls_lists_every_tensor(saved, capsys):
    assert main(["ls", saved]) == 0
    assert "float64   48  v/.ATTRIBUTES/VARIABLE_VALUE  [2, 3]" in capsys.readouterr().out


def test_ls_is_json_for_programs(saved, capsys):
    assert main(["ls", "--json", saved]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"key": "v/.ATTRIBUTES/VARIABLE_VALUE", "dtype": "float64", "shape": [2, 3], "bytes": 48} in rows
    assert next(row["bytes"] for row in rows if row["key"].startswith("s/")) >= len("text")


def test_what_the_terminal_cannot_show_is_escaped(tmp_path):
    """A terminal of another encoding, as on Windows, is no reason to fail."""
    path = Checkpoint(größe=Variable(1.0), ключ=Variable(1.0)).write(tmp_path / "ckpt")
    command = [sys.executable, "-m", "milepost.tools", "ls", path]
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        text=True,
        encoding="cp1252",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "größe/.ATTRIBUTES" in done.stdout
    assert "\\u043a\\u043b\\u044e\\u0447/.ATTRIBUTES" in done.stdout


def test_a_directory_means_its_latest_checkpoint(saved, tmp_path, capsys):
    assert main(["ls", str(tmp_path)]) == 0
    assert "v/.ATTRIBUTES/VARIABLE_VALUE" in capsys.readouterr().out


def damage(prefix):
    data = pathlib.Path(prefix + ".data-00000-of-00001")
    damaged = bytearray(data.read_bytes())
    damaged[-1] ^= 1
    data.write_bytes(damaged)
    return str(data)


@pytest.fixture
def series(tmp_path):
    checkpoint = Checkpoint(v=Variable(np.arange(6.0)))
    manager = CheckpointManager(checkpoint, tmp_path / "series", max_to_keep=3)
    return [manager.save() for _ in range(3)]


def test_verify_finds_damage(saved, capsys):
    data = damage(saved)
    assert main(["verify", saved]) == 1
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert data in message


def test_verify_reads_all_checkpoints_of_a_directory(series, capsys):
    assert main(["verify", os.path.dirname(series[0])]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == series[::-1]


@pytest.mark.parametrize("damaged", range(3))
def test_verify_of_a_directory_passes_over_no_damage(series, capsys, damaged):
    """Least of all over that of the newest, of which an older good one would take the place."""
    data = damage(series[damaged])
    assert main(["verify", os.path.dirname(series[0])]) == 1
    captured = capsys.readouterr()
    assert data in captured.err
    assert len(captured.out.splitlines()) == 2


def test_verify_misses_a_checkpoint_that_is_gone(series, capsys):
    for file in pathlib.Path(series[2]).parent.glob("ckpt-3.*"):
        file.unlink()
    assert main(["verify", os.path.dirname(series[0])]) == 1
    assert series[2] in capsys.readouterr().err


def test_verify_of_a_directory_without_checkpoints_is_an_error(tmp_path, capsys):
    assert main(["verify", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_a_warning_is_one_for_readers_of_output(series, capsys):
    damage(series[2])
    assert main(["ls", os.path.dirname(series[0])]) == 0
    message = capsys.readouterr().err
    assert message.startswith("warning: ")
    assert series[2] in message
    assert ".py" not in message


def test_graph_draws_an_svg(saved, tmp_path, capsys):
    assert main(["graph", saved, "-o", str(tmp_path / "graph.svg")]) == 0
    assert "4 nodes" in capsys.readouterr().out
    assert ET.parse(tmp_path / "graph.svg").getroot().tag.endswith("svg")


def test_graph_writes_dot(saved, tmp_path):
    assert main(["graph", saved, "-o", str(tmp_path / "graph.dot")]) == 0
    assert (tmp_path / "graph.dot").read_text().startswith("digraph")


def test_graph_draws_to_the_screen_a_part(saved, capsys):
    assert main(["graph", saved, "--root", "v"]) == 0
    assert "save_counter" not in capsys.readouterr().out


def test_a_picture_that_cannot_be_written_is_an_error(saved, tmp_path, capsys):
    assert main(["graph", saved, "-o", str(tmp_path / "no" / "graph.svg")]) == 1
    assert "graph.svg" in capsys.readouterr().err


@pytest.mark.parametrize("depth", ["-1", "two", "1.5"])
def test_a_depth_is_a_whole_number(saved, depth, capsys):
    with pytest.raises(SystemExit):
        main(["graph", saved, "--depth", depth])
    assert f"expected 0 or a larger whole number, found {depth!r}" in capsys.readouterr().err


def test_a_file_of_another_library_has_no_graph(tmp_path, capsys):
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert main(["graph", str(path)]) == 1
    error = capsys.readouterr().err
    assert "have no object graph" in error
    assert f"milepost ls {path}" in error


def test_a_demo_without_a_directory_is_an_error(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["demo", "--directory", str(tmp_path / "file" / "demo")]) == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_errors_are_printed_without_a_traceback(tmp_path, capsys):
    assert main(["ls", str(tmp_path / "missing")]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err
    assert not captured.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"milepost {command}" in capsys.readouterr().out.split("example:")[1]


def test_these_are_all_commands(capsys):
    text = parser().format_help()
    listed = [line.split()[0] for line in text.splitlines() if line.startswith("    ") and line[4] != " "]
    assert listed == COMMANDS


def test_the_manual_is_what_help_says():
    page = pathlib.Path(__file__).parents[2] / "docs" / "cli.md"
    assert page.read_text() == manual(), "python -m milepost.tools.manual > docs/cli.md"


def test_the_module_runs_as_a_program(saved):
    done = subprocess.run(
        [sys.executable, "-m", "milepost.tools", "ls", saved], capture_output=True, text=True, check=True
    )
    assert "VARIABLE_VALUE" in done.stdout
