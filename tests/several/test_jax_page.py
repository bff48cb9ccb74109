"""The program of docs/jax.md runs in four processes, and goes on in two."""

import os
import re
import subprocess
import sys

import pytest

import milepost
from tests.several.programs import ROOT, free_port

pytest.importorskip("jax")
pytest.importorskip("optax")

PAGE = ROOT / "docs" / "jax.md"
LAST = 10


def start(directory, size, last):
    """Runs the program; returns what each process has printed."""
    (text,) = re.findall(r"^```python\n(\"\"\"train\.py.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    text = text.replace("12345", str(free_port())).replace(f"{LAST + 1})", f"{last + 1})")
    (directory / "train.py").write_text(text)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={4 // size}",
        "JAX_PLATFORMS": "cpu",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "train.py", str(rank), str(size)],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        said = [process.communicate(timeout=240) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * size, said
    return [out.splitlines() for out, _ in said]


def test_the_program_runs_in_four_processes_and_goes_on_in_two(tmp_path):
    (tmp_path / "whole").mkdir()
    whole = start(tmp_path / "whole", 4, LAST)
    assert [lines[0] for lines in whole] == [f"process {rank} of 4 begins after step 0" for rank in range(4)]
    (tmp_path / "cut").mkdir()
    start(tmp_path / "cut", 4, 7)
    rest = start(tmp_path / "cut", 2, LAST)
    assert [lines[0] for lines in rest] == [f"process {rank} of 2 begins after step 5" for rank in range(2)]
    assert rest[0][1].rpartition(" ")[2] == whole[0][1].rpartition(" ")[2]
    assert milepost.latest_checkpoint(str(tmp_path / "cut" / "run")).endswith("ckpt-10")
