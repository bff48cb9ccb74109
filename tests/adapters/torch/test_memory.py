"""A restore takes no more memory than the state itself and 64 MiB."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
if not Path("/proc/self/clear_refs").exists():
    pytest.skip("the peak of memory is read from Linux", allow_module_level=True)

from tests.adapters.torch.memory import WAYS

ROOT = Path(__file__).parents[3]
MARGIN = 64


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    done = subprocess.run(
        [sys.executable, "-m", "tests.adapters.torch.memory", str(tmp_path_factory.mktemp("memory"))],
        cwd=ROOT,
        # Memory that is freed goes back to the system at once, and does not hide what is taken after that.
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("way", WAYS)
def test_a_restore_of_half_a_gigabyte_takes_what_was_not_there_and_64_mebibytes(measured, way):
    needed, taken = measured[way]
    assert needed * 0.95 <= taken <= needed + MARGIN
