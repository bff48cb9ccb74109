"""Signals that announce the end of a process: which are caught, which come twice, and how long the process has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milepost import Checkpoint, CheckpointManager, UnsupportedError, Variable
from milepost.manager.signals.termination import termination_signal

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no SIGUSR1")

BEGIN = """
import os, signal, sys, time
import milepost.manager.signals.caught_signal
from milepost import Checkpoint, CheckpointManager, Variable

def send(number):
    os.kill(os.getpid(), number)

class Sending:
    def state_dict(self):
        send(signal.SIGTERM)
        return {"value": 3}
    def load_state_dict(self, state):
        pass
"""


def run(code: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + code, str(directory)], capture_output=True, text=True, timeout=60
    )


def manager(directory: Path, **options: Any) -> CheckpointManager:
    return CheckpointManager(Checkpoint(v=Variable(1.0)), directory, 2, every_steps=100, **options)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    "on_signal", [signal.SIGUSR1, int(signal.SIGUSR1), [signal.SIGUSR1], (signal.SIGUSR2, signal.SIGUSR1)]
)
def test_another_signal_makes_a_save_due(tmp_path: Path, on_signal: Any) -> None:
    before = signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGTERM)
    with manager(tmp_path, on_signal=on_signal) as series:
        assert not series.should_save(1)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert series.should_save(2)
        assert series.reached_preemption(2)
        assert signal.getsignal(signal.SIGTERM) is before[1]
    assert (signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGTERM)) == before


def test_each_signal_has_its_own_handler_of_the_program(tmp_path: Path) -> None:
    calls: list[str] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: calls.append("first"))
    signal.signal(signal.SIGUSR2, lambda number, frame: calls.append("second"))
    with manager(tmp_path, on_signal=[signal.SIGUSR1, signal.SIGUSR2]):
        os.kill(os.getpid(), signal.SIGUSR2)
        assert calls == []
    assert calls == ["second"]


def _leave_by(error: BaseException, series: CheckpointManager) -> None:
    with pytest.raises(type(error)):
        _raise_in(error, series)


def _raise_in(error: BaseException, series: CheckpointManager) -> None:
    with series:
        os.kill(os.getpid(), signal.SIGTERM)
        raise error


def test_the_handler_is_called_after_the_program_has_left_the_block_by_exit(tmp_path: Path) -> None:
    calls: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    _leave_by(SystemExit(75), manager(tmp_path, on_sigterm=True))
    assert calls == [signal.SIGTERM]


def test_the_handler_is_not_called_after_an_error(tmp_path: Path) -> None:
    calls: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    _leave_by(ZeroDivisionError(), manager(tmp_path, on_sigterm=True))
    assert calls == []


def test_a_signal_of_another_kind_is_no_second_one(tmp_path: Path) -> None:
    """A batch system may send SIGUSR1 before the time is over, and SIGTERM when it is."""
    done = run(
        """
milepost.manager.signals.caught_signal.SAME_SIGNAL = 0
with CheckpointManager(Checkpoint(v=Variable(1)), sys.argv[1], 1, on_sigterm=True, on_signal=signal.SIGUSR1) as manager:
    send(signal.SIGUSR1)
    send(signal.SIGTERM)
    manager.save(3)
print(manager.steps)
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "[3]\n"), done.stderr


def test_the_same_signal_at_once_is_one(tmp_path: Path) -> None:
    """A process can get it from the batch system and from the launcher."""
    with manager(tmp_path, on_sigterm=True) as series:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert series.reached_preemption()


@pytest.mark.parametrize(
    "options", ["", ", options=milepost.CheckpointOptions(enable_async=True)"], ids=["sync", "async"]
)
def test_a_second_signal_in_the_last_save_does_not_cut_it_short(tmp_path: Path, options: str) -> None:
    done = run(
        f"""
milepost.manager.signals.caught_signal.SAME_SIGNAL = 0
with CheckpointManager(Checkpoint(v=Sending()), sys.argv[1], 1, on_sigterm=True{options}) as manager:
    send(signal.SIGTERM)
    manager.save(3)
print(manager.steps, flush=True)
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "[3]\n"), done.stderr


class TestDeadline:
    def test_it_ends_a_step_that_hangs(self, tmp_path: Path) -> None:
        done = run(
            """
with CheckpointManager(Checkpoint(v=Variable(1)), sys.argv[1], 1, on_sigterm=True, grace_seconds=0.2) as manager:
    manager.save(3)
    send(signal.SIGTERM)
    time.sleep(60)
""",
            tmp_path,
        )
        assert done.returncode == 128 + signal.SIGTERM
        assert (
            done.stderr == "milepost: the process ends now, because it has not ended in the 0.2 seconds since SIGTERM\n"
        )
        assert CheckpointManager(Checkpoint(v=Variable(0)), tmp_path, 1).restore_or_initialize() == str(
            tmp_path / "ckpt-3"
        )

    def test_it_ends_with_the_block(self, tmp_path: Path) -> None:
        done = run(
            """
for _ in range(2):
    with CheckpointManager(Checkpoint(v=Variable(1)), sys.argv[1], 1, on_sigterm=True, grace_seconds=0.2) as manager:
        manager.restore_or_initialize()
        send(signal.SIGTERM)
        manager.save()
    time.sleep(0.5)
print("ended by itself")
""",
            tmp_path,
        )
        assert (done.returncode, done.stdout) == (0, "ended by itself\n"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"on_signal": "SIGUSR1"}, "on_signal"),
        ({"on_signal": [signal.SIGUSR1, 4000]}, "on_signal"),
        ({"on_signal": getattr(signal, "SIGKILL", None)}, "on_signal"),
        ({"on_sigterm": True, "grace_seconds": 0}, "grace_seconds"),
        ({"on_sigterm": True, "grace_seconds": "60"}, "grace_seconds"),
        ({"grace_seconds": 60}, "grace_seconds"),
    ],
    ids=str,
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], key: str) -> None:
    with pytest.raises(UnsupportedError, match=f"key: {key}"):
        termination_signal(**{"on_sigterm": False, "on_signal": None, "grace_seconds": None, **arguments})
