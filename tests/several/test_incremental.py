"""Several processes save incrementally: each takes over what it would write itself."""

from __future__ import annotations

import numpy as np
import pytest

import milepost
from tests.several.programs import run, same

SAVING = """
base = [np.arange(200_000.0) + number for number in range(size)]
checkpoint = Checkpoint(base=base, step=Variable(0), generator=np.random.default_rng(rank))
manager = CheckpointManager(
    checkpoint, f"{directory}/run", max_to_keep=3, options=CheckpointOptions(incremental=True, **options)
)
def save(number):
    checkpoint.step.assign(number)
    return manager.save()
results["paths"] = [attempt(f"save {number}", lambda: save(number)) for number in range(1, 5)]
later = CheckpointOptions(incremental=True, enable_async=True, **options)
checkpoint.step.assign(5)
attempt("async", lambda: manager.save(options=later))
attempt("sync", manager.sync)

class NoLinks(milepost.storage.LocalStorage):
    def link(self, source, target):
        if rank == 1:
            raise milepost.StorageError("no links here", errno=1, file=source)
        super().link(source, target)
refusing = CheckpointOptions(incremental=True, storage=NoLinks(), **options)
checkpoint.step.assign(6)
attempt("refused", lambda: manager.save(options=refusing))
half = CheckpointOptions(incremental=rank == 0, **options)
checkpoint.step.assign(7)
attempt("one alone", lambda: manager.save(options=half))
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What three processes have saved: the directory of the checkpoints, and the results of each."""
    directory = tmp_path_factory.mktemp("incremental")
    return directory / "run", run(SAVING, 3, directory)


def inodes(directory, number):
    return {path.stat().st_ino for path in directory.glob(f"ckpt-{number}.data-*")}


def test_all_saves_succeed(saved):
    directory, results = saved
    assert same([each["paths"] for each in results]) == [f"{directory}/ckpt-{number}" for number in range(1, 5)]
    for name, number in (("async", 5), ("refused", 6), ("one alone", 7)):
        assert same([each[name] for each in results]) == f"{directory}/ckpt-{number}"


def test_every_checkpoint_is_whole_although_others_were_deleted(saved):
    directory, _ = saved
    assert sorted(path.name for path in directory.glob("*.index")) == [f"ckpt-{number}.index" for number in (5, 6, 7)]
    for number in (5, 6, 7):
        reader = milepost.load_checkpoint(directory / f"ckpt-{number}")
        reader.verify()
        assert reader.get_tensor("step/.ATTRIBUTES/VARIABLE_VALUE") == number
        for place in range(3):
            found = reader.get_tensor(f"base/{place}/.ATTRIBUTES/VARIABLE_VALUE")
            assert np.array_equal(found, np.arange(200_000.0) + place)


def test_each_process_takes_its_files_over(saved):
    """Where process 1 cannot, it alone writes; where process 0 alone wants to, it alone takes over."""
    directory, _ = saved
    sizes = {path.stat().st_ino: path.stat().st_size for path in directory.glob("*.data-*")}
    large = {number: {inode for inode in inodes(directory, number) if sizes[inode] > 1_000_000} for number in (5, 6, 7)}
    assert {number: len(found) for number, found in large.items()} == {5: 3, 6: 3, 7: 3}
    assert len(large[5] & large[6]) == 2
    assert len(large[6] & large[7]) == 1


def test_nothing_is_left_over(saved):
    assert not list(saved[0].glob("*.tmp"))


def test_tensorflow_reads_them(saved):
    tensorflow = pytest.importorskip("tensorflow")
    reader = tensorflow.train.load_checkpoint(f"{saved[0]}/ckpt-7")
    assert np.array_equal(reader.get_tensor("base/2/.ATTRIBUTES/VARIABLE_VALUE"), np.arange(200_000.0) + 2)
