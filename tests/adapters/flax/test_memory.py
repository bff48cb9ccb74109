"""A restore takes no more memory than the state itself and what it reads ahead."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flax.nnx")
if not Path("/proc/self/clear_refs").exists():
    pytest.skip("the peak of memory is read from Linux", allow_module_level=True)

import milepost
from tests.adapters.flax.memory import STATE, make

ROOT = Path(__file__).parents[3]
MARGIN = 64


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    return milepost.Checkpoint(net=make()).write(tmp_path_factory.mktemp("memory") / "ckpt")


def taken(prefix, how):
    command = [sys.executable, "-m", "tests.adapters.flax.memory", prefix, how]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def test_an_abstract_model_takes_its_own_size(prefix):
    assert taken(prefix, "abstract") < STATE + MARGIN


def test_a_model_that_has_values_takes_nothing_more(prefix):
    assert taken(prefix, "live") < MARGIN
