"""What type checkers and editors know of milepost: the types of programs, and calls that are mistakes.

`make lint` runs these tests, since that is where mypy is installed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api", reason="mypy is not installed here; make lint runs these")

ACCEPTED = """
from typing import Any, assert_type

import milepost
import milepost.jax
from milepost import Checkpoint, CheckpointManager, LoadStatus, Module, Variable


class Net(Module):
    def __init__(self) -> None:
        self.bias = Variable([0.0])


class Training(Checkpoint):
    step: Variable
    net: Net


training = Training(step=Variable(0), net=Net())
assert_type(training.step, Variable)
assert_type(training.net.bias, Variable)

manager = CheckpointManager(training, "directory", 3)
assert_type(manager.checkpoint, Training)
assert_type(manager.checkpoint.step.assign_add(1), Variable)


def of_any_checkpoint(manager: CheckpointManager) -> None:
    assert_type(manager.checkpoint, Checkpoint)


of_any_checkpoint(manager)

generic = Checkpoint(step=Variable(0))
generic.net = Net()  # assigning is always possible
assert_type(CheckpointManager(generic, "directory", None).checkpoint, Checkpoint)
assert_type(generic.save_counter, Variable)

untyped: Any = Checkpoint(step=Variable(0))
untyped.step.assign(1)

v = Variable(0)
v += 1
v -= 1
v *= 2
v **= 2
v //= 2
v /= 2
v %= 2
assert_type(v, Variable)
v.assign(1).assign_sub(1)
v.sum(), v.reshape(1, 1).T, v.tolist(), v.mean(axis=0), v.astype("int64"), v.itemsize


class State:
    step: int = 0


tree: dict[str, list[float]] = {"params": [0.0]}
restored, status = milepost.jax.restore("path", tree)
assert_type(restored, dict[str, list[float]])
assert_type(status, LoadStatus)
state, _ = milepost.jax.restore("path", State())
assert_type(state, State)
latest, _ = milepost.jax.TreeManager("directory").restore_latest(State())
assert_type(latest, State)
"""

DECLARED = """
import milepost


class Training(milepost.Checkpoint):
    step: milepost.Variable


training = Training(step=milepost.Variable(0))
checkpoint = milepost.Checkpoint(step=milepost.Variable(0))
manager = milepost.CheckpointManager(training, "directory", 3)
"""
REJECTED = {
    "checkpoint.restor('path')": '"Checkpoint" has no attribute "restor"; maybe "restore"?',
    "checkpoint.step.assign(1)": '"Checkpoint" has no attribute "step"',
    "training.stepp.assign(1)": '"Training" has no attribute "stepp"; maybe "step"?',
    "training.step.asign(1)": '"Variable" has no attribute "asign"; maybe "assign"?',
    "manager.checkpoint.restor('path')": '"Training" has no attribute "restor"',
    "manager.sav()": '"CheckpointManager[Training]" has no attribute "sav"; maybe "save"?',
    "milepost.Module().variable": 'Module has no attribute "variable"; maybe "variables"?',
    "milepost.CheckpointManager(training.step, 'directory', 3)": "cannot be",
}
"""Mistakes, and what mypy says of each."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def findings(program: str, tmp_path: Path, cache: Path) -> list[str]:
    """What mypy, as strict as can be, says of a program."""
    file = tmp_path / "program.py"
    file.write_text(program)
    options = ["--strict", "--python-version=3.12", "--config-file=", "--follow-imports=silent", "--no-error-summary"]
    said, problems, _ = api.run([*options, f"--cache-dir={cache}", str(file)])
    assert not problems
    return [line for line in said.splitlines() if ": error: " in line]


def test_programs_have_types(tmp_path: Path, cache: Path) -> None:
    """Declared attributes, the manager's checkpoint, variables after ``+=`` and restored trees are what they are."""
    assert findings(ACCEPTED, tmp_path, cache) == []


def test_misspelt_names_are_found(tmp_path: Path, cache: Path) -> None:
    """Every mistake is an error in its line, and nothing else is one."""
    first = DECLARED.count("\n") + 1
    found = findings(DECLARED + "\n".join(REJECTED), tmp_path, cache)
    for number, (mistake, message) in enumerate(REJECTED.items(), first):
        assert [line for line in found if f"program.py:{number}: " in line and message in line], (mistake, found)
    assert len(found) == len(REJECTED)
