"""Two workers of a MultiWorkerMirroredStrategy save together; one process restores, and so do two workers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import milepost
from tests.several.programs import ROOT, free_port, settings

pytest.importorskip("tensorflow")

PROGRAM = """
import json, os, sys
rank, directory = int(sys.argv[1]), sys.argv[2]
import tensorflow as tf
import milepost
strategy = tf.distribute.MultiWorkerMirroredStrategy()
results = {}

def made(value):
    with strategy.scope():
        return milepost.Checkpoint(
            weights=tf.Variable([value, 2.0]), step=tf.Variable(int(value)),
            total=tf.Variable(value, synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.SUM),
        )

saved = made(4.0)
manager = milepost.CheckpointManager(saved, directory + "/run", max_to_keep=2)
results["paths"] = [manager.save(), manager.save(), manager.save()]
results["checkpoints"] = manager.checkpoints
live = made(0.0)
manager = milepost.CheckpointManager(live, directory + "/run", max_to_keep=2)
results["restored"] = manager.restore_or_initialize()
manager.status.assert_consumed()
results["values"] = [live.weights.numpy().tolist(), int(live.step.numpy()), float(live.total.read_value().numpy())]
live.generator = milepost.RandomState()
results["more"] = manager.save()
if rank == 1:
    live.more = milepost.Variable(7)
try:
    manager.save()
except milepost.CoordinationError as error:
    results["refused"] = str(error)
print("RESULTS " + json.dumps(results), flush=True)
"""


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    """The directory, and the results of two workers."""
    directory = tmp_path_factory.mktemp("workers")
    cluster = {"worker": [f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"]}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), str(directory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=settings(TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})),
        )
        for rank in range(2)
    ]
    results = []
    try:
        for process in processes:
            out, error = process.communicate(timeout=300)
            lines = [line for line in out.splitlines() if line.startswith("RESULTS ")]
            assert process.returncode == 0, error[-3000:]
            results.append(json.loads(lines[-1].removeprefix("RESULTS ")))
    finally:
        for process in processes:
            process.kill()
    return directory, results


def test_both_workers_save_one_checkpoint(workers):
    directory, results = workers
    assert [each["paths"] for each in results] == [[f"{directory}/run/ckpt-{number}" for number in (1, 2, 3)]] * 2
    assert [each["checkpoints"] for each in results] == [[f"{directory}/run/ckpt-{number}" for number in (2, 3)]] * 2


def test_both_workers_restore_it(workers):
    directory, results = workers
    assert [each["restored"] for each in results] == [f"{directory}/run/ckpt-3"] * 2
    assert results[0]["values"] == results[1]["values"]
    assert results[0]["values"][:2] == [[4.0, 2.0], 4]


def test_one_process_reads_it(workers):
    reader = milepost.load_checkpoint(workers[0] / "run" / "ckpt-4")
    assert reader.get_tensor("weights/.ATTRIBUTES/VARIABLE_VALUE").tolist() == [4.0, 2.0]
    names = [name for name, _ in milepost.list_variables(workers[0] / "run" / "ckpt-4")]
    assert any("random-of-process-1-of-2" in name for name in names)


def test_the_sum_over_workers_stays_what_it_was(workers):
    saved = milepost.load_variable(f"{workers[0]}/run/ckpt-4", "total")
    assert workers[1][0]["values"][2] == saved == 8.0


def test_a_difference_is_refused_on_both(workers):
    assert all("process 1 of 2 and process 0 hold" in each["refused"] for each in workers[1])
