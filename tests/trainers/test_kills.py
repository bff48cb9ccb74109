"""Runs of every trainer that are killed at any moment, again and again, end as runs that are not."""

import importlib.util

import pytest

pytest.importorskip("torch")

import torch

from tests import programs
from tests.trainers.killed import TRAINERS
from tests.trainers.killing import quiet, run_with_kills

KILLS = 2
SEEDS = dict(zip(TRAINERS, range(1, 5), strict=True))


def imports():
    """All trainers that there are, so that one process stands by for the runs of all."""
    found = [trainer for trainer in TRAINERS if importlib.util.find_spec(trainer) is not None]
    modules = [each for trainer in found for each in (TRAINERS[trainer], f"milepost.{trainer}")]
    return ["pytest", *programs.imports("torch"), *modules]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_run_that_is_killed_at_random_moments_ends_as_one_that_is_not(tmp_path, trainer):
    pytest.importorskip(trainer)
    command, common = ["-m", "tests.trainers.killed", trainer], {"environment": quiet(), "imports": imports()}
    whole = programs.run([*command, tmp_path / "whole", tmp_path / "expected"], **common)
    assert whole.returncode == 0, whole.stderr[-4000:]
    result = tmp_path / "result"
    kills = run_with_kills(
        [*command, tmp_path / "run", result], tmp_path / "run", result, KILLS, SEEDS[trainer], imports()
    )
    assert kills == KILLS
    expected, found = (torch.load(tmp_path / name) for name in ("expected", "result"))
    assert expected.keys() == found.keys()
    assert all(torch.equal(value, found[name]) for name, value in expected.items())
