"""A training that is killed goes on in a fresh process as if nothing had happened, bit for bit."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("flax.nnx")
ROOT = Path(__file__).parents[3]


def start(directory, last):
    directory.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.adapters.flax.child", str(directory), str(last)],
        cwd=ROOT,
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},  # compiles faster
        stderr=(directory / "errors.txt").open("w"),
    )


def finished(process, directory):
    """The losses by step, and what describes the final state."""
    assert process.wait() == 0, (directory / "errors.txt").read_text()
    losses, *state = json.loads((directory / "result.json").read_text())
    return losses, state


def killed(directory, last):
    assert start(directory, last).wait() == -signal.SIGKILL, (directory / "errors.txt").read_text()


def test_a_killed_training_goes_on_bit_for_bit(tmp_path):
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    process = start(straight, 20)
    killed(broken, 12)  # saved at 10
    killed(broken, 14)  # saved again at 10, right after the restore
    losses, state = finished(start(broken, 20), broken)
    expected, expected_state = finished(process, straight)
    assert list(losses) == [str(step) for step in range(11, 21)]
    assert losses == {step: loss for step, loss in expected.items() if int(step) > 10}
    assert state == expected_state
