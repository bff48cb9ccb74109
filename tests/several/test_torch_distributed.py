"""Directories of torch.distributed.checkpoint (DCP) that four processes saved, restored by several processes and by one."""

import numpy as np
import pytest

import milepost
from tests.several.programs import TORCH, run, same

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("torch.distributed.checkpoint")

_COMMON = """
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.tensor.debug import CommDebugMode
from tests.several import sharded_models as models

def made(kind, **settings):
    model = models.build(kind, size, **settings)
    return Checkpoint(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.01))

def restored(kind, saved, expected, **settings):
    ck = made(kind, seed=5, **settings)
    with CommDebugMode() as seen:
        status = ck.read(f"{directory}/{saved}", options=CheckpointOptions(**options))
    status.assert_consumed()
    found = models.state(ck.model, ck.optimizer)
    facts = {"equal": models.same(found, expected), "collectives": seen.get_total_counts()}
    facts["next"] = models.step(ck.model, ck.optimizer, 7)
    return facts
"""
KINDS = ("fsdp", "hsdp", "tensor")
SAVE = (
    _COMMON
    + """
for kind in ("fsdp", "hsdp", "tensor"):
    ck = made(kind)
    for seed in range(2):
        models.step(ck.model, ck.optimizer, seed)
    for way in ("names", "flat"):
        model, optimizer = get_state_dict(
            ck.model, ck.optimizer, options=StateDictOptions(flatten_optimizer_state_dict=way == "flat")
        )
        state = {"model": model, "optimizer": optimizer}
        if way == "flat" and kind == "fsdp":
            dcp.async_save(state, checkpoint_id=f"{directory}/{kind}-{way}").result()
        else:
            dcp.save(state, checkpoint_id=f"{directory}/{kind}-{way}")
    dcp.save({"model": ck.model.state_dict(), "optimizer": ck.optimizer.state_dict()}, checkpoint_id=f"{directory}/{kind}-numbers")
    expected = models.state(ck.model, ck.optimizer)
    if rank == 0:
        np.savez(f"{directory}/{kind}.npz", **expected)
    for way in ("names", "flat", "numbers"):
        results[f"{kind} {way}"] = restored(kind, f"{kind}-{way}", expected, device="meta" if way == "names" else "cpu")
    results[kind] = models.step(ck.model, ck.optimizer, 7)
"""
)
RESTORE = (
    _COMMON
    + """
for saved in ("fsdp", "hsdp", "tensor"):
    expected = dict(np.load(f"{directory}/{saved}.npz"))
    results[saved] = restored("fsdp" if size > 1 else "plain", f"{saved}-names", expected)
"""
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("dcp")


@pytest.fixture(scope="module")
def four(directory):
    """What each of four processes has found that saved with DCP and restored with milepost."""
    return run(SAVE, 4, directory, TORCH)


@pytest.mark.parametrize("way", ["names", "flat", "numbers"])
@pytest.mark.parametrize("kind", KINDS)
def test_training_goes_on_bit_for_bit(four, kind, way):
    for each in four:
        assert each[f"{kind} {way}"] == {"equal": True, "collectives": 0, "next": each[kind]}


@pytest.mark.parametrize("kind", KINDS)
def test_one_program_without_processes_reads_whole_tensors(four, directory, kind):
    reader = milepost.load_checkpoint(directory / f"{kind}-names")
    with np.load(directory / f"{kind}.npz") as file:
        expected = dict(file)
    for key, array in expected.items():
        name = key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE").removeprefix("model/")
        name, _, slot = name.partition("/.OPTIMIZER_SLOT/optimizer/")
        name = name.replace("/", ".")
        found = reader.get_tensor(f"optimizer/state/{name}/{slot}" if slot else f"model/{name}")
        assert (found.dtype, found.tobytes()) == (array.dtype, array.tobytes()), key


@pytest.mark.parametrize("processes", [1, 3])
def test_fewer_processes_restore_them(four, directory, processes):
    for each in run(RESTORE, processes, directory, TORCH):
        assert all(each[kind]["equal"] for kind in KINDS)


def test_each_process_reads_its_own_boxes_only(tmp_path):
    program = """
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from milepost.storage import LocalStorage

read = {}

class Counting(LocalStorage):
    def open(self, path):
        return Counted(super().open(path))

class Counted:
    def __init__(self, file):
        self.file, self.path, self.size, self.close = file, file.path, file.size, file.close
    def count(self, nbytes):
        read[os.path.basename(self.path)] = read.get(os.path.basename(self.path), 0) + nbytes
    def read(self, offset, length):
        self.count(length)
        return self.file.read(offset, length)
    def read_into(self, offset, buffer):
        self.count(memoryview(buffer).nbytes)
        self.file.read_into(offset, buffer)

def made(device):
    with torch.device(device):
        model = nn.Sequential(nn.Linear(1024, 1024), nn.Linear(1024, 2048, bias=False))
    return fully_shard(model, mesh=init_device_mesh("cpu", (size,)))

torch.manual_seed(rank)
model = made("cpu")
dcp.save({"model": model.state_dict()}, checkpoint_id=f"{directory}/dcp")
fresh = made("meta")
Checkpoint(model=fresh).read(f"{directory}/dcp", options=CheckpointOptions(storage=Counting(), **options)).assert_consumed()
results["equal"] = all(torch.equal(a.to_local(), b.to_local()) for a, b in zip(model.parameters(), fresh.parameters()))
results["read"] = read
"""
    for rank, each in enumerate(run(program, 2, tmp_path, TORCH)):
        assert each["equal"]
        own, other = (each["read"].get(f"__{number}_0.distcp", 0) for number in (rank, 1 - rank))
        assert own > 6 << 20  # a half of 4 and 8 MiB
        assert other < 1 << 20


def test_values_are_those_that_all_processes_saved(tmp_path):
    program = """
import torch.distributed.checkpoint as dcp
dcp.save({"epoch": 3, "pair": (torch.ones(2), 1), "lr": [0.1, {"a": torch.zeros(1)}]}, checkpoint_id=f"{directory}/dcp")
epoch = Variable(0)
Checkpoint(epoch=epoch).read(f"{directory}/dcp", options=CheckpointOptions(**options)).expect_partial()
results["epoch"] = int(epoch)
"""
    assert same(run(program, 2, tmp_path, TORCH)) == {"epoch": 3}
    assert milepost.load_variable(tmp_path / "dcp", "pair/0").tolist() == [1, 1]
    assert milepost.load_variable(tmp_path / "dcp", "lr/1/a").tolist() == [0]


def test_processes_that_saved_for_themselves_are_refused(tmp_path):
    program = """
import torch.distributed.checkpoint as dcp
dcp.save({"w": torch.ones(2)}, checkpoint_id=f"{directory}/dcp", use_collectives=False)
"""
    run(program, 2, tmp_path, TORCH)
    with pytest.raises(milepost.UnsupportedError, match="use_collectives=False") as caught:
        milepost.load_checkpoint(tmp_path / "dcp")
    assert caught.value.found == "__0.metadata, __1.metadata"
