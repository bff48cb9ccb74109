"""A training that is killed and resumed in fresh processes ends with the very bits of one that was not."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

ROOT = Path(__file__).parents[3]


def run(directory, steps, *flags):
    command = [sys.executable, "-m", "tests.adapters.jax.training", str(directory), str(steps), *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == (-signal.SIGKILL if "--kill" in flags else 0), done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole"), 20)


@pytest.mark.parametrize("form", [[], ["--trees"]], ids=["checkpoint", "trees"])
def test_three_processes_end_as_one(tmp_path, expected, form):
    run(tmp_path, 7, "--kill", *form)
    run(tmp_path, 12, "--kill", *form)
    assert run(tmp_path, 20, *form) == expected
