"""Where no more file can be opened, every operation ends in an error of milepost, though what makes the error may be imported first then."""

import subprocess
import sys

import pytest

from tests.systems import needs_fork, needs_proc

pytestmark = [needs_fork, needs_proc]

PROGRAM = """
import os, resource, sys, warnings
import numpy as np
import milepost

directory = sys.argv[1]
state = milepost.Checkpoint(w=milepost.Variable(np.zeros(3)), late=milepost.Variable(np.zeros(3)))
good = milepost.Checkpoint(w=milepost.Variable(np.zeros(3)), plain=[1, {"a": 2}]).write(f"{directory}/good")
manager = milepost.CheckpointManager(state, f"{directory}/run", 2)
manager.save()
background = milepost.Checkpoint(w=milepost.Variable(np.zeros(3)))

ASYNCHRONOUS = milepost.CheckpointOptions(experimental_enable_async_checkpoint=True)

def in_background():
    background.save(f"{directory}/background", ASYNCHRONOUS)
    background.sync()

OPERATIONS = {
    "a save": lambda: state.save(f"{directory}/new"),
    "a write": lambda: state.write(f"{directory}/new"),
    "a write in place of another": lambda: state.write(good),
    "an asynchronous save": in_background,
    "an incremental save": lambda: state.write(f"{directory}/new", milepost.CheckpointOptions(incremental=True)),
    "a save of a tree": lambda: milepost.save(f"{directory}/tree", {"a": np.zeros(3)}),
    "a restore": lambda: state.restore(good),
    "a read": lambda: state.read(good),
    "a load": lambda: milepost.load(good),
    "a list": lambda: milepost.list_variables(good),
    "a reader": lambda: milepost.load_checkpoint(good),
    "a conversion": lambda: milepost.convert(good, f"{directory}/a.npz"),
    "the latest": lambda: milepost.latest_checkpoint(f"{directory}/run"),
    "a state file": lambda: milepost.get_checkpoint_state(f"{directory}/run"),
    "a manager": lambda: milepost.CheckpointManager(state, f"{directory}/other", 2).save(),
    "a manager of what is there": lambda: milepost.CheckpointManager(state, f"{directory}/run", 2),
    "a save of a manager": manager.save,
    "a restore of a manager": manager.restore_or_initialize,
    "a removal": lambda: milepost.tensorflow1.remove_checkpoint(good),
    "a wrong key": lambda: reader.get_tensor("v/.ATTRIBUTES/VARIABLE_VALU"),
    "characters of a terminal": lambda: reader.get_tensor("\\x1b[2J"),
    "a warning": lambda: milepost.errors.warn("nothing"),
}
reader = milepost.load_checkpoint(good) if sys.argv[2] == "open" else None
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
for name in sys.argv[3:]:
    sys.stdout.flush()
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limit[1]))
    try:
        OPERATIONS[name]()
        found = "nothing"
    except milepost.MilepostError as error:
        found = f"{type(error).__name__}: {error}".partition(chr(10))[0]
    except BaseException as error:
        found = f"FOREIGN {type(error).__name__}: {error}"
    print(f"{name}|{found}", flush=True)
    os._exit(0)
"""
ERRORS = {
    "a wrong key": "KeyNotFoundError",
    "characters of a terminal": "KeyNotFoundError",
    "a warning": "nothing",
}
NAMES = [
    *("a save", "a write", "a write in place of another", "an asynchronous save", "an incremental save", "a save of a tree"),
    *("a restore", "a read", "a load", "a list", "a reader", "a conversion", "the latest", "a state file"),
    *("a manager", "a manager of what is there", "a save of a manager", "a restore of a manager", "a removal"),
]  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What comes of each operation, each in a fork of a process that has saved and has read nothing, or has a checkpoint open."""
    said = {}
    for reader, names in (("none", NAMES), ("open", ERRORS)):
        path = tmp_path_factory.mktemp("files")
        command = [sys.executable, "-c", PROGRAM, path, reader, *names]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        said |= dict(line.split("|", 1) for line in done.stdout.splitlines() if "|" in line)
    return said


@pytest.mark.parametrize("name", [*NAMES, *ERRORS])
def test_the_error_is_one_of_milepost(name, outcomes):
    assert outcomes[name].startswith(ERRORS.get(name, "StorageError"))
