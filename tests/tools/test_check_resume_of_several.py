"""`milepost check-resume` of programs of several processes, each in a session of its own, as launchers start them."""

import subprocess
import sys

import pytest

from milepost.tools.cli import main

TRAIN = """
import os, sys
import milepost
import numpy as np

rank = int(sys.argv[1])
print("begun by", rank)
noise = np.random.default_rng(rank)
own = np.random.default_rng(10)
coordinator = milepost.coordination.FileCoordinator(sys.argv[2], rank, 2)
state = milepost.Checkpoint(weights=np.zeros(3), step=0, **({} if os.environ.get("LACKING") else {"noise": noise}))
options = milepost.CheckpointOptions(coordinator=coordinator, process_timeout=20, each_process=["weights"])
manager = milepost.CheckpointManager(state, "run", max_to_keep=3, options=options)
manager.restore_or_initialize()
while state.step < 6:
    state.weights += noise.normal(size=3)
    if rank:
        state.weights += own.normal(size=3) if os.environ.get("LACKING_IN_ONE") else 1
    state.step += 1
    print(f"rank {rank} step {state.step} {state.weights.sum()!r}")
    if state.step % 2 == 0:
        manager.save(state.step)
"""
LAUNCH = """
import subprocess, sys, time, uuid

commands = [[sys.executable, "train.py", str(rank), f"messages-{uuid.uuid4()}"] for rank in range(2)]
commands[1][-1] = commands[0][-1]
workers = [subprocess.Popen(each, start_new_session=True) for each in commands]
while all(each.poll() is None for each in workers):
    time.sleep(0.01)
if any(each.returncode for each in workers):
    print("a worker was killed")
codes = [each.wait() for each in workers]
sys.exit(max(map(abs, codes)))
"""


@pytest.fixture
def checked(tmp_path, monkeypatch, capsys):
    """Runs the command with options, in the directory of the program; returns what it has printed."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "train.py").write_text(TRAIN)
    (tmp_path / "home" / "launch.py").write_text(LAUNCH)
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))

    def check(*options, status):
        assert main(["check-resume", *options, "--", sys.executable, "launch.py"]) == status
        return capsys.readouterr()

    return check


def processes_of(directory):
    """The processes whose environment names a directory."""
    listed = subprocess.run(["ps", "eww", "-A", "-o", "pid,command"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if str(directory / "temporary") in line]


def test_all_processes_are_killed_and_the_lines_of_each_compared(checked, tmp_path):
    lines = checked("--kill-at", "1.5", status=0).out.splitlines()
    assert lines[1] == "the same: 14 lines of output, and every value of the last of 3 checkpoints"
    assert not processes_of(tmp_path)


def test_one_process_is_killed_and_the_launcher_ends(checked, monkeypatch):
    monkeypatch.setattr("milepost.tools.resumes.processes.GRACE", 0.5)
    lines = checked("--kill-at", "2", "--kill-process", "1", status=0).out.splitlines()
    assert lines[0] == "killed process 1 right after it had saved run/ckpt-4, and started again"


def test_what_all_processes_lack_is_named_once(checked, monkeypatch):
    monkeypatch.setenv("LACKING", "1")
    lines = checked("--kill-at", "2", status=1).out.splitlines()
    assert lines[1] == "different: process 0 wrote another line when it was started again"
    assert lines[5:] == [
        "  noise of train.py (Generator): one state at the save, another state after the restore; put it into the Checkpoint"
    ]


def test_what_one_process_lacks_is_named_with_the_process(checked, monkeypatch):
    monkeypatch.setenv("LACKING_IN_ONE", "1")
    lines = checked("--kill-at", "2", status=1).out.splitlines()
    assert lines[1] == "different: process 1 wrote another line when it was started again"
    assert lines[5:] == [
        "  own of train.py, in process 1 (Generator): one state at the save, another state after the restore; put it into the Checkpoint"
    ]


def test_a_process_that_the_program_lacks_cannot_be_killed(checked):
    message = checked("--kill-process", "2", status=3).err
    assert "expected: a number from 0 to 1" in message
