"""`milepost status` says whether a run is complete."""

import pytest

from milepost import Checkpoint, CheckpointManager, Variable
from tests.tools.commands import json_of, output_of


@pytest.fixture
def manager(tmp_path):
    return CheckpointManager(Checkpoint(v=Variable(1.0)), tmp_path / "run", 2)


def test_each_state_of_a_run(manager, tmp_path, capsys):
    run = tmp_path / "run"
    assert output_of(capsys, "status", run, status=1).out == "not complete: nothing is saved\n"
    manager.save(3)
    assert output_of(capsys, "status", run, status=1).out == "not complete: the newest checkpoint is ckpt-3\n"
    manager.complete()
    assert output_of(capsys, "status", run).out == "complete: the newest checkpoint is ckpt-3\n"
    manager.save(4)
    assert output_of(capsys, "status", run, status=1).out == "not complete: the newest checkpoint is ckpt-4\n"


def test_as_json(manager, tmp_path, capsys):
    path = manager.save(3)
    manager.complete()
    run = str(tmp_path / "run")
    assert json_of(capsys, "status", run) == {"directory": run, "complete": True, "latest": path}


def test_a_state_file_that_is_malformed_is_an_error(manager, tmp_path, capsys):
    manager.save(3)
    (tmp_path / "run" / "checkpoint").write_text("damaged")
    assert "error:" in output_of(capsys, "status", tmp_path / "run", status=3).err
