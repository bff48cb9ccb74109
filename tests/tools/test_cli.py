"""The command line."""

import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from milepost import Checkpoint, Variable
from milepost.tools.cli import main, parser
from milepost.tools.manual import manual

COMMANDS = ["ls", "verify", "graph", "demo"]


@pytest.fixture
def saved(tmp_path):
    return Checkpoint(v=Variable(np.arange(6.0).reshape(2, 3)), s=Variable("text")).save(tmp_path / "ckpt")


def test_ls_lists_every_tensor(saved, capsys):
    assert main(["ls", saved]) == 0
    assert "float64  v/.ATTRIBUTES/VARIABLE_VALUE  [2, 3]" in capsys.readouterr().out


def test_ls_is_json_for_programs(saved, capsys):
    assert main(["ls", "--json", saved]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"key": "v/.ATTRIBUTES/VARIABLE_VALUE", "dtype": "float64", "shape": [2, 3]} in rows


def test_a_directory_means_its_latest_checkpoint(saved, tmp_path, capsys):
    assert main(["verify", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(saved)


def test_verify_finds_damage(saved, capsys):
    data = pathlib.Path(saved + ".data-00000-of-00001")
    damaged = bytearray(data.read_bytes())
    damaged[-1] ^= 1
    data.write_bytes(damaged)
    assert main(["verify", saved]) == 1
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert str(data) in message


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
