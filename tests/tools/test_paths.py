"""What commands print as a path can be typed again."""

import os

import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, Variable
from milepost.tools.cli import main
from milepost.tools.paths import typed_path
from milepost.tools.terminal import shown
from tests.tools.commands import json_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="names of files have no control characters")
NAMES = ["red\x1b[31m", "li\nne", "\u202eleft", "not\udcffutf8", "\\x1b and\x1b"]


@pytest.fixture
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_printed_path_means_the_file(inside, name, capsys):
    try:
        path = milepost.save(os.path.join(name, name), {"a": 1})
    except milepost.StorageError:
        pytest.skip("this file system has no such names")
    main(["show", path])
    printed = capsys.readouterr().out.partition(": checkpoint")[0]
    assert printed == shown(path)
    for each in (printed, os.path.abspath(printed)):
        assert json_of(capsys, "show", each)["tensors"]
        assert main(["verify", each]) == main(["ls", each]) == main(["diff", each, path]) == 0
        capsys.readouterr()


def test_a_path_with_a_backslash_is_itself(inside):
    for name in (r"a\x1b", "a\x1b"):
        milepost.save(name, {"a": 1})
    assert typed_path(r"a\x1b") == r"a\x1b"


def test_a_path_that_is_not_there_stays_as_it_is(inside):
    assert typed_path(r"/no/such\x1b/path\n") == r"/no/such\x1b/path\n"


def test_prune_takes_printed_names(inside, capsys):
    manager = CheckpointManager(Checkpoint(v=Variable(1.0)), "ru\nn", 5, checkpoint_name="a\tb")
    for loss in (0.1, 0.2, 0.3):
        manager.save(metrics={"lo\x1bss": loss})
    Checkpoint(v=Variable(1.0)).save("ru\nn/other")
    assert main(["prune", r"ru\nn", "--keep", "1"]) == 3
    assert r"--name 'a\tb'" in capsys.readouterr().err
    found = json_of(capsys, "prune", r"ru\nn", "--name", r"a\tb", "--best", r"lo\x1bss:min")
    assert [os.path.basename(each["path"]) for each in found["deleted"]] == ["a\tb-2"]
