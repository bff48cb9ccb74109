"""Saves of several processes, for which threads stand: what each step is for."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointManager, CheckpointOptions, load_variable
from milepost.coordination import FileCoordinator
from milepost.distributed.find import is_first
from milepost.errors import AfterCommitError, CoordinationError
from milepost.graph.adapter import Adapter, Value, register, unregister
from milepost.graph.keys import VARIABLE_VALUE
from milepost.storage import LocalStorage
from milepost.tensor import DType, Shard, ShardedArray

FLOAT = DType.of("float32")


class Halves:
    """A tensor of which each process holds some parts."""

    def __init__(self, *shards):
        self.shards = shards


class HalvesAdapter(Adapter):
    leaf = True

    def handles(self, kind):
        return kind is Halves

    def values(self, obj):
        return (Value(VARIABLE_VALUE, FLOAT, (4,), lambda: ShardedArray(FLOAT.numpy, (4,), obj.shards, "halves")),)


@pytest.fixture
def halves():
    adapter = HalvesAdapter()
    register(adapter)
    yield
    unregister(adapter)


def half(start, number, *holders):
    return Shard((start,), np.full(2, number, np.float32), holders)


def together(work, directory, timeout=20.0):
    """What ``work(rank, options)`` returns or raises on each of two processes."""
    results = [None] * 2

    def run(rank):
        options = {"coordinator": FileCoordinator(directory / "messages", rank, 2), "process_timeout": timeout}
        try:
            results[rank] = work(rank, options)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_each_process_writes_a_file_and_process_0_one_more_for_the_whole(tmp_path):
    def work(rank, options):
        return Checkpoint(own=np.full(3, rank)).write(
            tmp_path / "w", CheckpointOptions(each_process=["own"], **options)
        )

    assert together(work, tmp_path) == [str(tmp_path / "w")] * 2
    assert sorted(name for name in os.listdir(tmp_path) if name != "messages") == [
        "w.data-00000-of-00003",
        "w.data-00001-of-00003",
        "w.data-00002-of-00003",
        "w.index",
    ]


def test_a_value_that_differs_fails_on_both_and_nothing_is_saved(tmp_path):
    def work(rank, options):
        Checkpoint(step=np.full(3, rank)).write(tmp_path / "w", CheckpointOptions(**options))

    results = together(work, tmp_path)
    assert [result.key.partition("/")[0] for result in results] == ["step"] * 2
    assert all(isinstance(result, CoordinationError) for result in results)
    assert os.listdir(tmp_path) == ["messages"]


@pytest.mark.usefixtures("halves")
def test_halves_of_two_processes_become_one_tensor(tmp_path):
    def work(rank, options):
        held = Halves(half(2 * rank, rank + 1, rank))
        return Checkpoint(held=held).write(tmp_path / "w", CheckpointOptions(**options))

    assert together(work, tmp_path) == [str(tmp_path / "w")] * 2
    assert load_variable(tmp_path / "w", "held").tolist() == [1, 1, 2, 2]


@pytest.mark.usefixtures("halves")
def test_copies_of_a_part_that_differ_are_refused_on_both(tmp_path):
    def work(rank, options):
        held = Halves(half(0, 1, 0, 1), half(2, rank, 0, 1))
        Checkpoint(held=held).write(tmp_path / "w", CheckpointOptions(**options))

    results = together(work, tmp_path)
    assert all(isinstance(result, CoordinationError) for result in results)
    assert all("held" in result.key and "(2,)" in result.found for result in results)


def test_metadata_is_that_of_process_0_on_both(tmp_path):
    def work(rank, options):
        checkpoint = Checkpoint(step=np.zeros(3))
        manager = CheckpointManager(checkpoint, tmp_path / "run", 2, options=CheckpointOptions(**options))
        manager.save(metadata={"rank": rank})
        return manager.metadata(1)

    assert together(work, tmp_path) == [{"rank": 0}] * 2


def test_process_1_has_made_its_files_durable_before_the_commit(tmp_path):
    done = []

    class Noting(LocalStorage):
        def __init__(self, rank):
            super().__init__()
            self.rank = rank

        def sync_directory(self, path):
            super().sync_directory(path)
            done.append(("sync", self.rank))

        def rename(self, source, target):
            done.append((os.path.basename(target), self.rank))
            super().rename(source, target)

    def work(rank, options):
        options |= {"each_process": ["own"], "storage": Noting(rank)}
        return Checkpoint(own=np.full(3, rank)).write(tmp_path / "w", CheckpointOptions(**options))

    assert together(work, tmp_path) == [str(tmp_path / "w")] * 2
    assert done.index(("sync", 1)) < done.index(("w.index", 0))


def test_who_gives_up_before_the_commit_does_not_say_that_it_is_saved(tmp_path):
    given_up = threading.Event()

    class Held(LocalStorage):
        def rename(self, source, target):
            if str(target).endswith("w.index"):
                given_up.wait(20)
            super().rename(source, target)

    def work(rank, options):
        storage = LocalStorage() if rank else Held()
        try:
            Checkpoint(step=np.zeros(3)).write(tmp_path / "w", CheckpointOptions(storage=storage, **options))
        finally:
            if rank == 1:
                given_up.set()

    results = together(work, tmp_path, timeout=0.1)
    assert all(isinstance(result, CoordinationError) for result in results), results
    assert not any(isinstance(result, AfterCommitError) for result in results)
    assert not os.path.exists(tmp_path / "w.index")


def test_who_does_something_else_is_named(tmp_path):
    checkpoints = [Checkpoint(step=np.zeros(3)) for _ in range(2)]
    saved = checkpoints[1].write(tmp_path / "saved")

    def work(rank, options):
        if rank:
            checkpoints[1].read(saved, CheckpointOptions(**options))
        else:
            checkpoints[0].write(tmp_path / "w", CheckpointOptions(**options))

    results = together(work, tmp_path)
    assert all(isinstance(result, CoordinationError) for result in results)
    assert results[0].found.endswith(", on process 1 of 2")


def test_process_0_is_the_first_and_so_is_one_that_is_alone(tmp_path):
    of_two = [CheckpointOptions(coordinator=FileCoordinator(tmp_path, rank, 2)) for rank in range(2)]
    assert [is_first(options) for options in (*of_two, CheckpointOptions())] == [True, False, True]
