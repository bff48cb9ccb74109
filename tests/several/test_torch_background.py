"""Asynchronous saves of `DTensor` in two processes: the training goes on while a save is held up in its files."""

import pytest

import milepost
from tests.several.programs import TORCH, run, same

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

PROGRAM = """
import errno, threading
from torch.distributed.tensor import distribute_tensor, Replicate, Shard
from milepost.storage import LocalStorage
from tests.several import gpt

class Held(LocalStorage):
    "Makes no file before it may, and fails in this process if it is to."

    def __init__(self):
        super().__init__()
        self.may, self.fails = threading.Event(), False

    def create(self, path):
        assert self.may.wait(60)
        if self.fails and ".data-" in path:
            raise milepost.StorageError("no space left on device", errno=errno.ENOSPC, file=path)
        return super().create(path)

called = set()

def note(frame, event, argument):
    if threading.current_thread() is not threading.main_thread() and event == "call":
        called.add(frame.f_globals.get("__name__", ""))

layout = gpt.Layout("fsdp", size)
mesh = gpt.mesh_of(layout)
model = gpt.build(layout, mesh, 0)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
replicated = distribute_tensor(torch.zeros(3), mesh, [Replicate()])
large = distribute_tensor(torch.zeros(300, 200), mesh, [Shard(1)])
order = torch.Generator().manual_seed(3)

def step():
    loss = gpt.loss_of(model, gpt.batch(order, layout, rank))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()
    replicated.add_(1)
    large.add_(1)
    return loss.item()

storage = Held()
checkpoint = Checkpoint(model=model, optimizer=optimizer, replicated=replicated, large=large)
later = CheckpointOptions(enable_async=True, storage=storage, **options)
manager = CheckpointManager(checkpoint, directory + "/run", max_to_keep=3, options=later)
step()

# Held up in its files, while the training goes on.
expected = gpt.state(model, optimizer)
if rank == 0:
    np.savez(directory + "/expected.npz", **expected)
threading.setprofile(note)
manager.save()
results["losses"] = [step() for _ in range(4)]
torch.distributed.barrier()
results["is there"] = os.path.exists(directory + "/run/ckpt-1.index")
storage.may.set()
attempt("sync", manager.sync)
threading.setprofile(None)
results["calls"] = sorted(called)
results["is there then"] = os.path.exists(directory + "/run/ckpt-1.index")

# It fails in process 1.
storage.may.clear()
storage.fails = rank == 1
attempt("save that will fail", manager.save)
results["more losses"] = [step() for _ in range(2)]
storage.may.set()
attempt("next save", manager.save)
storage.fails = False
attempt("save after that", manager.save)
attempt("last sync", manager.sync)
results["latest"] = manager.latest_checkpoint
storage.fails = rank == 1
attempt("save that fails", manager.save)
attempt("sync of that", manager.sync)
attempt("sync again", manager.sync)
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("background")


@pytest.fixture(scope="module")
def two(directory):
    """What each of two processes has found."""
    return run(PROGRAM, 2, directory, TORCH)


def test_training_goes_on_while_a_save_is_held_up(two):
    for each in two:
        assert len(each["losses"]) == 4
        assert (each["is there"], each["sync"], each["is there then"]) == (False, None, True)


def test_the_file_holds_the_values_of_the_moment_of_the_call(two, directory):
    import numpy as np

    reader = milepost.load_checkpoint(directory / "run" / "ckpt-1")
    with np.load(directory / "expected.npz") as expected:
        for key, value in expected.items():
            found = reader.get_tensor(key)
            assert (found.dtype, found.shape, found.tobytes()) == (value.dtype, value.shape, value.tobytes()), key
    assert reader.get_tensor("replicated/.ATTRIBUTES/VARIABLE_VALUE").tolist() == [1] * 3
    assert (reader.get_tensor("large/.ATTRIBUTES/VARIABLE_VALUE") == 1).all()


def test_the_thread_of_the_save_calls_nothing_of_the_training(two):
    """It sends its messages through the store of the processes, whose methods are not written in Python."""
    for each in two:
        assert "milepost.saving.distributed_save" in each["calls"]
        assert [name for name in each["calls"] if name.startswith("torch.")] == []


def test_an_error_of_one_process_in_the_background_comes_out_in_the_next_save_of_all(two):
    for rank, each in enumerate(two):
        assert each["save that will fail"].endswith("ckpt-2")
        assert each["next save"].startswith("StorageError")
        assert "no space left on device" in each["next save"]
        assert rank == 1 or "process 1 of 2 failed" in each["next save"]


def test_an_error_of_one_process_in_the_background_comes_out_once_in_the_next_sync_of_all(two):
    for each in two:
        assert each["sync of that"].startswith("StorageError")
        assert each["sync again"] is None


def test_the_next_save_works(two):
    assert same([each["save after that"].rpartition("/")[2] for each in two]) == "ckpt-3"
    assert [each["last sync"] for each in two] == [None, None]
    assert same([each["latest"].rpartition("/")[2] for each in two]) == "ckpt-3"
