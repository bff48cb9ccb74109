"""Arrays of several processes, each of which saves and restores alone."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

from tests.several.programs import free_port

ROOT = Path(__file__).parents[3]
WHOLE = str(list(range(8)))


def test_replicated_arrays_are_saved_and_restored_and_spread_ones_refused(tmp_path):
    port = free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.adapters.jax.process", str(number), str(port), str(tmp_path)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    said = [process.communicate(timeout=300) for process in processes]
    for number, (out, errors) in enumerate(said):
        first = 4 * number
        assert out.splitlines() == [
            "refused x",
            f"{WHOLE} {WHOLE}",
            f"[{first}, {first + 1}] [{first + 2}, {first + 3}]",
        ], errors
