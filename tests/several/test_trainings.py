"""Trainings of PyTorch and of JAX on one to four processes, killed at random and resumed on other processes and meshes."""

from __future__ import annotations

import json

import pytest

from tests import programs
from tests.several.programs import JAX, TORCH, imports, settings


def trained(program, connect, directory, kind, seed):
    """What a program has seen, which trains once without a kill and once with three."""
    ended = programs.run(
        ["-m", program, directory, "--kind", kind, "--seed", str(seed), "--kills", "3"],
        imports=imports(connect, {}),
        environment=settings(PYTHONHASHSEED="1"),
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    seen = json.loads(ended.stdout.splitlines()[-1])
    assert seen["wrong"] == []
    return seen["counts"]


@pytest.mark.parametrize(("kind", "seed"), [("same", 6), ("others", 0)], ids=["asynchronous", "on other meshes"])
def test_a_gpt_of_pytorch_goes_on_as_if_nobody_had_killed_it(tmp_path, kind, seed):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    counts = trained("tests.several.torch_training", TORCH, tmp_path, kind, seed)
    assert counts["trainings that ended"] == 1
    assert counts["restores"] > 0


@pytest.mark.parametrize(("kind", "seed"), [("same", 0), ("others", 2)], ids=["synchronous", "on other meshes"])
def test_a_model_of_flax_goes_on_as_if_nobody_had_killed_it(tmp_path, kind, seed):
    pytest.importorskip("flax", reason="Flax is not installed")
    pytest.importorskip("optax", reason="Optax is not installed")
    counts = trained("tests.several.nnx_training", JAX, tmp_path, kind, seed)
    assert counts["trainings that ended"] == 1
    assert counts["restores"] > 0
