"""Runs that begin a series in the same directory at the same moment: one of them saves it, the others are refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, PythonState, load_checkpoint
from milepost.errors import CheckpointExistsError
from milepost.storage import MemoryStorage
from tests.manager.runs import indexes, new, value

pytestmark = pytest.mark.filterwarnings("error::milepost.errors.MilepostWarning")


class Meanwhile(PythonState):
    """Lets another run do something when its state is read, which is after the save has begun."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action

    def serialize(self) -> str:
        self._action()
        return ""

    def deserialize(self, value: str) -> None: ...


def beside(other: Callable[[], object]) -> Any:
    """A checkpoint of the value 2, during whose save the other run does something."""
    checkpoint = new(2.0)
    checkpoint.meanwhile = Meanwhile(other)
    return checkpoint


def save(checkpoint: Checkpoint, directory: Path, how: str, options: CheckpointOptions) -> None:
    if how == "manager":
        CheckpointManager(checkpoint, directory, 3, options=options).save()
    else:
        checkpoint.save(directory / "ckpt", options)
    checkpoint.sync()


@pytest.mark.parametrize("how", ["manager", "plain"])
@pytest.mark.parametrize("enable_async", [False, True], ids=["sync", "async"])
def test_a_run_that_another_one_has_overtaken_saves_nothing(tmp_path: Path, how: str, enable_async: bool) -> None:
    """There was no checkpoint when its save began."""
    checkpoint = beside(lambda: new(1.0).save(tmp_path / "ckpt"))
    with pytest.raises(CheckpointExistsError, match="at the same time") as caught:
        save(checkpoint, tmp_path, how, CheckpointOptions(enable_async=enable_async))
    assert "ckpt-1" in str(caught.value)
    assert value(restored(tmp_path)) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint",
        "ckpt-1.data-00000-of-00001",
        "ckpt-1.index",
    ]


def test_it_is_refused_under_another_number_too(tmp_path: Path) -> None:
    """A checkpoint with a higher number would push the others off the list."""
    manager = CheckpointManager(beside(lambda: new(1.0).save(tmp_path / "ckpt")), tmp_path, 3)
    with pytest.raises(CheckpointExistsError):
        manager.save(checkpoint_number=100)
    assert indexes(tmp_path) == ["ckpt-1"]


def test_a_save_that_is_refused_uses_no_number(tmp_path: Path) -> None:
    """So the run may save elsewhere as if nothing had happened."""
    checkpoint = beside(lambda: None if indexes(tmp_path / "a") else new(1.0).save(tmp_path / "a/ckpt"))
    with pytest.raises(CheckpointExistsError):
        checkpoint.save(tmp_path / "a/ckpt")
    assert checkpoint.save(tmp_path / "b/ckpt").endswith("ckpt-1")


def test_overwriting_is_allowed_as_ever(tmp_path: Path) -> None:
    """`CheckpointOptions(overwrite=True)` turns off the second check as well as the first."""
    checkpoint = beside(lambda: new(1.0).save(tmp_path / "ckpt"))
    save(checkpoint, tmp_path, "plain", CheckpointOptions(overwrite=True))
    assert value(restored(tmp_path)) == 2


def test_another_storage_than_files() -> None:
    """The rule is the same."""
    storage = MemoryStorage()
    options = CheckpointOptions(storage=storage)
    checkpoint = beside(lambda: new(1.0).save("run/ckpt", options))
    with pytest.raises(CheckpointExistsError):
        checkpoint.save("run/ckpt", options)
    assert (
        load_checkpoint("run/ckpt-1", CheckpointOptions(storage=storage)).get_tensor("v/.ATTRIBUTES/VARIABLE_VALUE")[0]
        == 1
    )


PROGRAM = """
import sys
import milepost, numpy as np
directory, rank = sys.argv[1], float(sys.argv[2])
manager = milepost.CheckpointManager(milepost.Checkpoint(v=milepost.Variable(np.full(100, rank))), directory, 3)
manager.restore_or_initialize()
print("ready", flush=True)
sys.stdin.readline()
try:
    for _ in range(3):
        manager.save()
    print("saved")
except milepost.CheckpointExistsError:
    print("refused")
"""


def test_of_three_processes_one_saves(tmp_path: Path) -> None:
    """As of a program that somebody started three times, or whose processes no library connects."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "run"), str(rank)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ends = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert sorted(ends) == ["refused", "refused", "saved"]
    assert value(restored(tmp_path / "run")) == ends.index("saved")
    assert indexes(tmp_path / "run") == ["ckpt-1", "ckpt-2", "ckpt-3"]


def restored(directory: Path) -> Any:
    """What the latest checkpoint of a directory holds."""
    latest, checkpoint = milepost.latest_checkpoint(directory), new()
    assert latest is not None
    checkpoint.read(latest).expect_partial()
    return checkpoint
