"""The program of docs/jax.md runs in four processes, and goes on in two."""

import re

import pytest

import milepost
from tests.several.programs import JAX, ROOT, Processes, free_port, settings

pytest.importorskip("jax")
pytest.importorskip("optax")

PAGE = ROOT / "docs" / "jax.md"
LAST = 10


def start(directory, size, last):
    """Runs the program; returns what each process has printed."""
    (text,) = re.findall(r"^```python\n(\"\"\"train\.py.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    text = text.replace("12345", str(free_port())).replace(f"{LAST + 1})", f"{last + 1})")
    (directory / "train.py").write_text(text)
    arguments = [["train.py", str(rank), str(size)] for rank in range(size)]
    environment = settings(XLA_FLAGS=f"--xla_force_host_platform_device_count={4 // size}")
    ended = Processes(arguments, JAX, environment, directory).end()
    assert [each.code for each in ended] == [0] * size, ended
    return [each.output.splitlines() for each in ended]


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
