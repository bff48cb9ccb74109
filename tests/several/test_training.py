"""A training on one to four processes, of which any is killed at any moment, and which goes on with another number of them."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

import milepost
from tests.several.programs import Programs

STEPS = 60
TRAINING = f"""
import time
def batch(step):
    return np.random.default_rng(step).normal(size=50)

checkpoint = Checkpoint(weights=np.zeros(50), momentum=np.zeros(50), step=0, large=np.zeros(400_000), random=milepost.RandomState())
manager = CheckpointManager(checkpoint, directory + "/run", max_to_keep=2, options=CheckpointOptions(**options, enable_async=ASYNC))
manager.restore_or_initialize()
results["from"] = checkpoint.step
while checkpoint.step < {STEPS}:
    checkpoint.momentum = 0.9 * np.asarray(checkpoint.momentum) + batch(checkpoint.step)
    checkpoint.weights = np.asarray(checkpoint.weights) - 0.01 * checkpoint.momentum
    checkpoint.large = np.full(400_000, float(checkpoint.step))
    checkpoint.step += 1
    manager.save()
manager.sync()
"""


def trained():
    """The weights of a run that nobody has killed."""
    weights, momentum = np.zeros(50), np.zeros(50)
    for step in range(STEPS):
        momentum = 0.9 * momentum + np.random.default_rng(step).normal(size=50)
        weights = weights - 0.01 * momentum
    return weights


@pytest.mark.parametrize("is_async", [False, True], ids=["synchronous", "asynchronous"])
@pytest.mark.filterwarnings("ignore::milepost.MilepostWarning")
def test_a_training_that_is_killed_again_and_again_ends_as_if_it_had_not_been(tmp_path, is_async):
    draw = random.Random(is_async)
    body = TRAINING.replace("ASYNC", str(is_async))
    steps = [0]
    for _ in range(6):
        size = draw.randint(1, 4)
        programs = Programs(body, size, tmp_path / "shared", timeout=2)
        begun, patience = time.monotonic(), draw.uniform(0.1, 1.0)
        known = len(list((tmp_path / "shared").glob("run/*.index")))
        while time.monotonic() - begun < 60 and programs.processes[0].poll() is None:
            if len(list((tmp_path / "shared").glob("run/*.index"))) > known or (known and time.monotonic() - begun > 2):
                break
            time.sleep(0.02)
        time.sleep(patience)
        programs.signal(draw.randrange(size))
        ended = programs.end()
        steps += [each.results["from"] for each in ended if each.results]
        latest = milepost.latest_checkpoint(tmp_path / "shared" / "run")
        steps.append(int(milepost.load_variable(latest, "step")) if latest else 0)
        assert steps[-1] >= max(steps)
    ended = Programs(body, 3, tmp_path / "shared", timeout=60).end()
    assert [each.code for each in ended] == [0, 0, 0], [each.error[-1000:] for each in ended]
    assert {each.results["from"] for each in ended} == {steps[-1]}
    latest = milepost.latest_checkpoint(tmp_path / "shared" / "run")
    assert int(milepost.load_variable(latest, "step")) == STEPS
    assert np.array_equal(milepost.load_variable(latest, "weights"), trained())
    assert np.array_equal(milepost.load_variable(latest, "large"), np.full(400_000, STEPS - 1.0))
