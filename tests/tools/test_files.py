"""Commands say which files a checkpoint has, and `milepost files` writes them."""

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointManager, CheckpointOptions, MaxShardSizePolicy, Variable
from tests.tools.commands import json_of, output_of
from tests.tools.test_report import data_of, page

FILES = {"tokenizer/vocab.json": b"{}", "tokenizer/merges.txt": b"", "notes": b"first"}
SIZES = {"notes": 5, "tokenizer/merges.txt": 0, "tokenizer/vocab.json": 2}


def saved(directory, files=FILES, value=1.0):
    return CheckpointManager(Checkpoint(v=Variable(value)), directory, 3).save(1, files=files)


@pytest.fixture
def path(tmp_path):
    return saved(tmp_path / "run")


def test_files_lists_them(path, capsys):
    lines = output_of(capsys, "files", path).out.splitlines()
    assert [line.split() for line in lines] == [["BYTES", "NAME"], *([str(SIZES[name]), name] for name in SIZES)]


def test_files_writes_them(path, tmp_path, capsys):
    assert output_of(capsys, "files", path, "--to", tmp_path / "out").out.startswith("3 files, 7 B, written to ")
    assert (tmp_path / "out" / "tokenizer" / "vocab.json").read_bytes() == b"{}"
    (tmp_path / "out" / "notes").write_text("mine")
    assert "other contents" in output_of(capsys, "files", path, "--to", tmp_path / "out", status=3).err


def test_files_of_a_checkpoint_without_any(tmp_path, capsys):
    assert "no files" in output_of(capsys, "files", saved(tmp_path, None)).err


def test_files_as_json(path, capsys):
    assert json_of(capsys, "files", path) == {"checkpoint": path, "files": SIZES, "to": None}


def test_ls_names_what_they_begin_with(path, tmp_path, capsys):
    header, line = output_of(capsys, "ls", tmp_path / "run").out.splitlines()
    assert "FILES" in header
    assert "notes, tokenizer/" in line
    (listed,) = json_of(capsys, "ls", tmp_path / "run")["checkpoints"]
    assert (listed["files"], listed["tensors"]) == (SIZES, 3)


def test_show_counts_them_apart_from_tensors(path, capsys):
    text = output_of(capsys, "show", path).out
    assert "files: notes (5 B), tokenizer/ (2 files, 2 B)" in text
    assert ".MILEPOST_FILES" not in text
    shown = json_of(capsys, "show", path)
    assert shown["files"] == SIZES
    assert len(shown["tensors"]) == 3


def test_show_of_one_says_what_it_is(path, capsys):
    assert "notes: a file of 5 B" in output_of(capsys, "show", path, ".MILEPOST_FILES/notes").out


def test_tensors_in_pieces_keep_their_places_beside_files(tmp_path, capsys):
    options = CheckpointOptions(experimental_sharding_callback=MaxShardSizePolicy(300))
    checkpoint = Checkpoint(a=Variable(np.zeros(100)), z=Variable(np.zeros(100)))
    path = CheckpointManager(checkpoint, tmp_path, 1, options=options).save(1, files=FILES)
    pieces = {each["key"][0]: each["pieces"] for each in json_of(capsys, "show", path)["tensors"]}
    assert (pieces["a"], pieces["z"], pieces["s"]) == (3, 4, 1)


def test_verify_counts_and_names_them(path, capsys):
    assert "3 tensors, 3 files, all checksums correct" in output_of(capsys, "verify", path).out
    assert json_of(capsys, "verify", path)["checkpoints"][0]["files"] == [*SIZES]


def test_report_has_them(path, tmp_path, capsys):
    assert json_of(capsys, "report", path)["checkpoints"][0]["files"] == SIZES
    data = data_of(page(tmp_path, path))
    assert data["checkpoints"][-1]["saved_files"] == "notes (5 B), tokenizer/ (2 files, 2 B)"


@pytest.mark.parametrize(
    ("files", "changes"),
    [
        ({**FILES, "notes": b"other"}, {"changed": ["notes"]}),
        ({**FILES, "notes": b"longer"}, {"changed": ["notes"]}),
        (
            {"notes": b"first", "more": b""},
            {"added": ["more"], "removed": ["tokenizer/merges.txt", "tokenizer/vocab.json"]},
        ),
    ],
)
def test_diff_names_those_that_differ(files, changes, path, tmp_path, capsys):
    other = saved(tmp_path / "other", files)
    expected = {"removed": [], "added": [], "changed": []} | changes
    assert json_of(capsys, "diff", path, other, status=1)["files"] == expected
    text = output_of(capsys, "diff", path, other, status=1).out
    assert all(f"files {change}: {', '.join(names)}" in text for change, names in changes.items())


def test_diff_of_equal_files_finds_nothing(path, tmp_path, capsys):
    assert output_of(capsys, "diff", path, saved(tmp_path / "other")).out == "2 the same\n"
