"""Runs that are killed beside a server of S3, over a network that loses, repeats, delays and cuts requests and answers."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import milepost
from milepost.storage import ObjectStorage
from tests.storage.proxy import Fault, proxy, random_faults

ROOT = Path(__file__).parents[2]
LEASE = 2.0
KILLS = 3
RATES = {fault: 0.015 for fault in Fault if fault is not Fault.DUPLICATED}
"""A repeated request to make an empty object is refused, and the object cannot be told from that of another: such a save fails."""


class Run:
    """The program `tests.series.store_run` on a store."""

    def __init__(self, url, options):
        self._command = [sys.executable, "-m", "tests.series.store_run", url, json.dumps(options), str(LEASE), "1000"]

    def killed_after(self, seconds):
        """Runs it until it is killed. Returns the step that it has begun with, and the last one that it has saved."""
        with subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        ) as process:
            lines = [process.stdout.readline()]
            if not lines[0]:
                raise AssertionError(process.stderr.read())
            time.sleep(seconds)
            process.kill()
            lines += process.stdout.readlines()
        assert [line for line in lines if line.startswith("error")] == []
        steps = [int(line.split()[1]) for line in lines]
        return steps[0], steps[-1]


@pytest.mark.parametrize("rates", [{}, RATES], ids=["killed", "killed on a bad network"])
def test_no_save_that_has_returned_is_lost(seaweed, rates):
    numbers, saved = random.Random(0), 0
    with proxy(int(seaweed.endpoint.rpartition(":")[2]), random_faults(0, rates), late=0.3) as between:
        url, options = seaweed.url(), {**seaweed.options, "endpoint": between.url}
        for _ in range(KILLS):
            began, last = Run(url, options).killed_after(numbers.uniform(0.5, 3))
            assert began >= saved
            saved = last
        between.plan = lambda _: None
        time.sleep(LEASE)
        storage = ObjectStorage(url, options, lease=LEASE)
        state = milepost.Checkpoint(step=0, values=milepost.Variable(np.zeros(5000)))
        manager = milepost.CheckpointManager(
            state, url, max_to_keep=2, options=milepost.CheckpointOptions(storage=storage)
        )
        manager.restore_or_initialize()
        assert state.step >= saved
        manager.save(checkpoint_number=state.step + 1)
        names = storage.list(url)
    listed = [path.rpartition("/")[2] for path in manager.checkpoints]
    assert {name.partition(".")[0] for name in names} == {"checkpoint", *listed}
    assert len(names) == 1 + 2 * len(listed)
