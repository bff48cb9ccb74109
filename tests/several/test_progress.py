"""Each of several processes is told of its own part of a save and a restore."""

import pytest

from tests.several.programs import TORCH, Programs, run

SAVE = """
told = []
options["progress"] = told.append
sharded = np.arange(4_000_000, dtype=np.float32) + rank
checkpoint = Checkpoint(own=sharded, same=Variable(np.ones(100_000)))
options["each_process"] = ["own"]
path = checkpoint.save(directory + "/ckpt", CheckpointOptions(**options))
results["save"] = [(each.bytes_done, each.bytes_total) for each in told]
told.clear()
checkpoint.restore(path, CheckpointOptions(**options)).assert_consumed()
results["restore"] = [(each.bytes_done, each.bytes_total) for each in told]
"""
BAR = """
options["progress"] = True
from milepost.engine import progress_bar
progress_bar._LINES = 0.0
checkpoint = Checkpoint(same=Variable(np.ones(100)))
checkpoint.save(directory + "/ckpt", CheckpointOptions(**options))
results["ok"] = True
"""
SHARDED = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
told = []
options["progress"] = told.append
mesh = init_device_mesh("cpu", (size,))
def made(value):
    return distribute_tensor(torch.full((8, 100_000), value), mesh, [Shard(0)])
path = Checkpoint(v=made(1.0)).write(directory + "/ckpt", CheckpointOptions(**options))
results["save"] = [(each.bytes_done, each.bytes_total) for each in told]
told.clear()
live = Checkpoint(v=made(0.0))
live.read(path, CheckpointOptions(**options)).assert_consumed()
results["right"] = bool(live.v.to_local().all())
results["restore"] = [(each.bytes_done, each.bytes_total) for each in told]
"""
INTERRUPTED = """
def interrupt(progress):
    if rank == 1:
        raise KeyboardInterrupt
options["progress"] = interrupt
checkpoint = Checkpoint(same=Variable(np.ones(100)))
try:
    attempt("save", lambda: checkpoint.save(directory + "/ckpt", CheckpointOptions(**options)))
except KeyboardInterrupt:
    results["save"] = "interrupted"
results["files"] = sorted(os.listdir(directory))
"""


def test_each_process_is_told_of_what_it_writes_and_takes(tmp_path):
    ended = run(SAVE, 2, tmp_path)
    own, same, counter = 16_000_000, 800_000, 8
    totals = [results["save"][0][1] for results in ended]
    assert all(total >= own for total in totals)
    assert sum(totals) == 2 * own + same + counter
    for results in ended:
        assert results["restore"][0] == [0, own + same + counter]
        for told in results["save"], results["restore"]:
            assert told == sorted(told)
            assert told[0][0] == 0
            assert [done for done, total in told if done == total] == [told[-1][1]]


def test_each_process_is_told_of_its_parts_of_tensors(tmp_path):
    pytest.importorskip("torch")
    for results in run(SHARDED, 2, tmp_path, TORCH):
        half = 8 * 100_000 * 4 // 2
        assert results["right"]
        for told in results["save"], results["restore"]:
            assert told == sorted(told)
            assert told[0] == [0, half]
            assert [done for done, total in told if done == total] == [half]


def test_process_0_alone_shows_a_bar(tmp_path):
    ended = Programs(BAR, 2, tmp_path).end()
    assert [each.code for each in ended] == [0, 0]
    assert ["milepost: sav" in each.error for each in ended] == [True, False]


def test_ctrl_c_in_the_function_of_one_process_fails_the_save_of_all(tmp_path):
    ended = run(INTERRUPTED, 2, tmp_path)
    assert ended[1]["save"] == "interrupted"
    assert ended[0]["save"].startswith("CoordinationError")
    assert ended[0]["files"] == []
