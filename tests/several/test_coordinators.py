"""The coordinators of libraries pass the checks of every coordinator, in real processes."""

import importlib.util
import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.several.programs import FILES, ROOT, TORCH, run

CHECKS = """
from milepost.adapters.coordinators import found_coordinator
from milepost.testing.coordinator_suite import check_here
coordinator = options.get("coordinator") or found_coordinator()
results["library"] = coordinator.library
results["checks"] = check_here(coordinator)
"""
MPI_PROGRAM = """
import json, sys
from mpi4py import MPI
import numpy as np
import milepost
from milepost.adapters.coordinators import found_coordinator
from milepost.testing.coordinator_suite import check_here

coordinator, directory = found_coordinator(), sys.argv[1]
results = {"library": coordinator.library, "checks": check_here(coordinator)}
assert found_coordinator() is coordinator
state = {"w": milepost.Variable(np.arange(5.0)), "random": milepost.Variable(np.full(2, coordinator.rank))}
options = milepost.CheckpointOptions(each_process=["random"])
path = milepost.Checkpoint(**state).write(directory + "/ckpt", options)
fresh = {"w": milepost.Variable(np.zeros(5)), "random": milepost.Variable(np.zeros(2, int))}
milepost.Checkpoint(**fresh).read(path, options).assert_consumed()
results["restored"] = [np.asarray(each).tolist() for each in fresh.values()]
with open(f"{directory}/{coordinator.rank}.json", "w") as file:
    json.dump(results, file)
coordinator.post("unread", bytes(1 << 20))  # what nobody waits for does not keep a program from ending
"""


def test_files_connect_real_processes(tmp_path):
    assert [each["checks"] for each in run(CHECKS, 3, tmp_path, FILES)] == [{}, {}, {}]


def test_the_store_of_torch(tmp_path):
    pytest.importorskip("torch")
    found = run(CHECKS, 3, tmp_path, TORCH)
    assert [(each["library"], each["checks"]) for each in found] == [("torch.distributed", {})] * 3


def test_a_message_that_its_process_takes_back_is_not_waited_for():
    """The store of PyTorch would wait for it for half an hour, if it was asked for a value that has just been there."""
    distributed = pytest.importorskip("torch.distributed")
    from milepost.adapters.torch.distributed.coordinator import _TorchStore

    class Cleared:
        """Another process clears the message after each question."""

        def __init__(self):
            self.store = distributed.HashStore()
            self.store.set_timeout(timedelta(seconds=1))
            self.store.set("key", b"message")

        def __getattr__(self, name):
            def ask(*arguments):
                found = getattr(self.store, name)(*arguments)
                self.store.delete_key("key")
                return found

            if name == "clone":
                raise AttributeError(name)
            return ask

    store = _TorchStore(Cleared())
    assert store.get("key", 0) == b"message"
    assert store.get("key", 0) is None


def test_mpi(tmp_path):
    """Needs mpi4py, and mpirun of the MPI that PyPI has."""
    mpirun = Path(sys.executable).parent / "mpirun"
    if importlib.util.find_spec("mpi4py") is None or not mpirun.exists():
        pytest.skip("mpi4py and MPI are not installed")
    command = [str(mpirun), "-n", "3", sys.executable, "-c", MPI_PROGRAM, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    results = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    for rank, each in enumerate(results):
        assert each == {"library": "MPI", "checks": {}, "restored": [[0.0, 1.0, 2.0, 3.0, 4.0], [rank, rank]]}
