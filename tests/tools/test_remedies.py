"""What a command says to do about an error are its options, and no arguments of Python."""

import contextlib

import numpy as np
import pytest

import milepost
from milepost.errors import MilepostError
from milepost.tools.cli import main
from milepost.tools.remedies import for_command
from tests.tools.commands import damage


@pytest.mark.parametrize(
    ("remedy", "said"),
    [
        ("pass overwrite=True, or another name", "pass --overwrite, or another name"),
        ("restore with rename={'net': 'model', 'a b': 'c'}", "restore with --rename net=model --rename 'a b=c'"),
        ("leave it out, with ignore='v'", "leave it out, with --ignore v"),
        ("pass ignore=['v', 'w*']", "pass --ignore v --ignore 'w*'"),
        ("pass format='checkpoint' if", "pass --to checkpoint if"),
        ("pass only=PART", "pass only=PART"),
        ("leave them out with ignore, or pass partial=True", "leave them out with --ignore"),
        (
            "pass latest_checkpoint('run'), or one of: 'a'",
            "pass the directory 'run', which means its latest checkpoint, or one of: 'a'",
        ),
    ],
)
def test_arguments_become_options(remedy, said):
    assert for_command(MilepostError("problem", remedy=remedy)).remedy == said


def test_prune_offers_no_other_directory_to_save_to():
    error = MilepostError("cannot create", remedy="let this user write to the directory, or save to another one")
    assert for_command(error, "prune").remedy == "let this user write to the directory"


def test_an_error_without_a_remedy_stays():
    assert str(for_command(MilepostError("problem"))) == "problem"


@pytest.fixture
def path(tmp_path):
    return milepost.save(tmp_path / "ckpt", {"net": {"w": np.ones(2, np.float32)}, "name": "text"})


@pytest.mark.parametrize(
    "arguments",
    [
        ["convert", "{}", "{}.weights.h5"],
        ["convert", "{}", "{}.index"],
        ["convert", "{}", "{}", "--overwrite", "--only", "nothing"],
        ["cat", "{}", "nothing"],
        ["show", "{}", "nothing"],
        ["verify", "{}"],
        ["diff", "{}", "{}-7"],
        ["show", "{}.data-00000-of-00001"],
    ],
)
def test_no_command_names_arguments_of_python(path, capsys, arguments):
    damage(path, "net/w")
    with contextlib.suppress(SystemExit):
        assert main([each.format(path) for each in arguments]) in (1, 3)
    said = capsys.readouterr().err
    assert "error: " in said
    assert "=True" not in said
    assert "()" not in said.replace("save_weights()", "")
    assert "='" not in said
