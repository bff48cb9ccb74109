"""No text of a file or of a path reaches a terminal or a log as anything but text."""

import os
import warnings

import pytest

import milepost
from milepost import Checkpoint, Module, Variable
from milepost.errors import CheckpointNotFoundError, MilepostError, SkippedCheckpointWarning, printable, warn
from milepost.tools.cli import main

NASTY = {
    "escape sequence": "\x1b[2J\x1b]0;title\x07",
    "8-bit control": "\x9b31m",
    "carriage return": "\rok",
    "right-to-left override": "\u202etxt",
    "isolate": "\u2066x\u2069",
    "line separator": "a\u2028b",
    "no encoding": "\udcff",
}
PLAIN = "äöü 漢字 \N{GRINNING FACE} a\tb\nc"


def is_clean(text):
    return all(letter.isprintable() or letter in "\n\t" for letter in text)


@pytest.fixture(params=list(NASTY.values()), ids=list(NASTY))
def nasty(request):
    return request.param


def test_what_is_plain_stays():
    """Text of any language, tabs and lines are shown as they are; in a name, tabs and lines are not."""
    assert printable(PLAIN) == PLAIN
    assert printable("a\tb\nc", one_line=True) == "a\\tb\\nc"


@pytest.mark.parametrize("fact", ["problem", "key", "file", "expected", "found", "remedy"])
def test_errors(nasty, fact):
    """Every fact is escaped when the error is printed; as an attribute it is what it is."""
    error = MilepostError(nasty) if fact == "problem" else MilepostError("wrong", **{fact: nasty})
    assert is_clean(str(error))
    assert nasty.encode("unicode_escape").decode() in str(error)
    assert getattr(error, fact) == nasty


def test_a_name_forges_no_line():
    """A key or a path with line ends in it stays on its line."""
    text = str(MilepostError("wrong", key="a\n  remedy: rm -rf", file="b\n  found: nothing"))
    assert len(text.splitlines()) == 3


def test_warnings(nasty):
    """So is the text of a warning."""
    with pytest.warns(milepost.MilepostWarning) as caught:
        warn(f"passed over {nasty}")
    assert is_clean(str(caught[0].message))


@pytest.fixture
def checkpoint(nasty, tmp_path):
    """A checkpoint with the text in a key."""
    if "\udcff" in nasty:
        pytest.skip("a key is UTF-8")
    module = Module()
    setattr(module, f"k{nasty}", Variable(1.0))
    return Checkpoint(m=module).save(tmp_path / "ckpt")


def test_reports(checkpoint):
    """A report of keys that nobody takes, and the errors that quote it."""
    fresh = Checkpoint(m=Module(), other=Variable(1.0))
    status = fresh.restore(checkpoint)
    assert is_clean(str(status.report()))
    with pytest.raises(milepost.UnmatchedError) as caught:
        status.assert_consumed()
    assert is_clean(str(caught.value))
    status.expect_partial()


def test_the_command_line(checkpoint, capsys):
    """Listing, drawing and verifying print no key as it is."""
    (key,) = (key for key, _ in milepost.list_variables(checkpoint) if key.startswith("m/"))
    commands = [
        ["ls", checkpoint],
        ["show", checkpoint],
        ["show", "--tree", checkpoint],
        ["show", "--json", checkpoint],
        ["show", checkpoint, key],
        ["diff", checkpoint, checkpoint],
        ["graph", checkpoint],
        ["graph", "--json", checkpoint],
        ["verify", checkpoint],
    ]
    for command in commands:
        assert main(command) == 0
        assert is_clean(capsys.readouterr().out)


def test_paths_of_a_state_file(nasty, tmp_path, capsys):
    """A state file that names a checkpoint so is skipped in words that can be read."""
    if "\udcff" in nasty:
        pytest.skip("a state file is UTF-8")
    good = Checkpoint(v=Variable(1.0)).save(tmp_path / "ckpt")
    named = "".join(f"\\{byte:03o}" for byte in nasty.encode())
    (tmp_path / "checkpoint").write_text(
        f'model_checkpoint_path: "{named}"\nall_model_checkpoint_paths: "ckpt-1"\n', encoding="ascii"
    )
    with pytest.warns(SkippedCheckpointWarning) as caught:
        assert milepost.latest_checkpoint(tmp_path) == good
    assert is_clean(str(caught[0].message))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedCheckpointWarning)
        main(["verify", str(tmp_path)])
    captured = capsys.readouterr()
    assert is_clean(captured.out + captured.err)


def test_directories_of_such_names(nasty, tmp_path, capsys):
    """What a user finds with a glob and passes on can have any name that a file can have."""
    directory = os.path.join(tmp_path, f"run{nasty}")
    with pytest.raises(CheckpointNotFoundError) as caught:
        milepost.load_checkpoint(directory)
    assert is_clean(str(caught.value))
    path = Checkpoint(v=Variable(1.0)).write(f"{directory}/ckpt")
    assert main(["verify", path]) == 0
    assert main(["ls", directory]) == 0
    assert main(["ls", f"{directory}/none"]) == 3
    captured = capsys.readouterr()
    assert is_clean(captured.out + captured.err)
