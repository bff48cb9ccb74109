"""Arrays that are spread over devices are saved and restored device by device, without the whole of one in memory."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")
if not Path("/proc/self/clear_refs").exists():
    pytest.skip("the peak of memory is read from Linux", allow_module_level=True)

ROOT = Path(__file__).parents[3]
STATE, MARGIN = 128, 64


def taken(prefix, how, axis=0):
    command = [sys.executable, "-m", "tests.adapters.jax.memory", str(prefix), how, str(axis)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    mebibytes, kept = done.stdout.split()
    return float(mebibytes), int(kept)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_save_takes_no_copy_and_leaves_none_behind(tmp_path, axis):
    mebibytes, kept = taken(tmp_path / "ckpt", "save", axis)
    assert mebibytes < MARGIN
    assert kept == 0


def test_an_asynchronous_save_copies_nothing(tmp_path):
    mebibytes, kept = taken(tmp_path / "ckpt", "async")
    assert mebibytes < MARGIN
    assert kept == 0


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("how", ["restore", "abstract"])
def test_a_restore_takes_the_new_state_alone(tmp_path, how, axis):
    taken(tmp_path / "ckpt", "save")
    mebibytes, _ = taken(tmp_path / "ckpt", how, axis)
    assert mebibytes < STATE + MARGIN
