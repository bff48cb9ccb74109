"""Arrays that are spread over devices."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

ROOT = Path(__file__).parents[3]


def run(module, *arguments):
    command = [sys.executable, "-m", f"tests.adapters.jax.{module}", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_piece_of_an_array_comes_to_the_device_that_is_to_have_it(tmp_path):
    done = run("spread", tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_sharding_that_does_not_divide_the_shape_is_refused_before_anything_changes(tmp_path):
    done = run("indivisible", tmp_path / "ckpt")
    assert done.stdout.split() == ["tree/b", "0.0"], done.stderr
