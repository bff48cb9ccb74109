"""What is read while another program overwrites it: one whole checkpoint, the old one or the new."""

import contextlib
import os
import pathlib
import time

import numpy as np
import pytest

from milepost import (
    Checkpoint,
    CheckpointNotFoundError,
    CheckpointOptions,
    CheckpointReader,
    MaxShardSizePolicy,
    StorageError,
    Variable,
    load_checkpoint,
)
from milepost.bundle import data_path, index_path, open_bundle, open_whole, opening
from milepost.storage import LocalStorage, local_files
from milepost.storage.local_files import LocalFile
from tests.objects import module


def saved(prefix, number, *, shards=1):
    values = {name: Variable(np.full(1000, number, np.float32)) for name in "abc"}
    sharding = MaxShardSizePolicy(4000) if shards > 1 else None
    return Checkpoint(**values).write(prefix, CheckpointOptions(experimental_sharding_callback=sharding))


def fresh():
    return Checkpoint(**{name: Variable(np.zeros(1000, np.float32)) for name in "abc"})


def numbers(checkpoint):
    return {float(number) for name in "abc" for number in getattr(checkpoint, name).numpy()}


class Overwriting(LocalStorage):
    """Has another program save whenever a data file is about to be opened, some times over."""

    def __init__(self, prefix, times, saves=1):
        super().__init__()
        self.prefix, self.times, self.saves, self.number = prefix, times, saves, 1

    def open(self, path):
        if ".data-" in path and self.times:
            self.times -= 1
            for _ in range(self.saves):
                self.number += 1
                saved(self.prefix, self.number)
        return super().open(path)


@pytest.mark.parametrize("saves", [1, 2, 3])
@pytest.mark.parametrize("times", [1, 5])
def test_a_restore_gets_the_checkpoint_that_took_the_place_of_the_one_it_began_to_open(prefix, times, saves):
    saved(prefix, 1)
    storage = Overwriting(prefix, times, saves)
    live = fresh()
    live.read(prefix, CheckpointOptions(storage=storage)).assert_consumed()
    assert numbers(live) == {storage.number}


@pytest.mark.parametrize("saves", [1, 2])
def test_a_restore_of_more_files_than_are_opened_at_once_begins_anew(prefix, monkeypatch, saves):
    monkeypatch.setattr(opening, "_MOST_HELD", 0)
    saved(prefix, 1)
    storage = Overwriting(prefix, 3, saves)
    live = fresh()
    live.read(prefix, CheckpointOptions(storage=storage)).assert_consumed()
    assert numbers(live) == {storage.number}


def test_a_checkpoint_that_is_replaced_for_ever_while_it_is_opened_is_said_to_be(prefix):
    saved(prefix, 1)
    with pytest.raises(StorageError, match="each time it was opened"):
        fresh().read(prefix, CheckpointOptions(storage=Overwriting(prefix, 10**6)))


@pytest.mark.parametrize("shards", [1, 3])
def test_a_reader_goes_on_with_what_it_opened(prefix, shards):
    saved(prefix, 1, shards=shards)
    reader = load_checkpoint(prefix)
    for number in (2, 3, 4):
        saved(prefix, number, shards=shards)
        assert set(reader.get_tensor("a/.ATTRIBUTES/VARIABLE_VALUE")) == {1}
        assert set(reader.get_tensor("c/.ATTRIBUTES/VARIABLE_VALUE")) == {1}
        reader.verify()


def test_a_tensor_is_mapped_from_the_checkpoint_that_was_opened(prefix):
    saved(prefix, 1)
    reader = CheckpointReader(prefix)
    saved(prefix, 2)
    assert set(reader.map_tensor("b/.ATTRIBUTES/VARIABLE_VALUE")) == {1}
    saved(prefix, 3)
    assert set(reader.map_tensor("c/.ATTRIBUTES/VARIABLE_VALUE")) == {1}


def test_a_checkpoint_without_its_data_can_still_be_listed(prefix):
    saved(prefix, 1)
    pathlib.Path(data_path(prefix, 0, 1)).unlink()
    reader = load_checkpoint(prefix)
    assert reader.get_variable_to_shape_map()["a/.ATTRIBUTES/VARIABLE_VALUE"] == [1000]
    with pytest.raises(CheckpointNotFoundError, match="data file"):
        reader.get_tensor("a/.ATTRIBUTES/VARIABLE_VALUE")


def test_a_reader_that_holds_nothing_says_that_the_checkpoint_was_replaced(prefix):
    saved(prefix, 1)
    reader = open_bundle(LocalStorage(), prefix)
    saved(prefix, 2)
    with pytest.raises(CheckpointNotFoundError, match="has replaced it"):
        reader.read("a/.ATTRIBUTES/VARIABLE_VALUE")


def test_every_shard_is_held_by_a_restore_that_waits(prefix):
    saved(prefix, 1, shards=3)
    assert len(list(pathlib.Path(prefix).parent.glob("*.data-*"))) == 3
    live = Checkpoint()
    live.read(prefix)
    for file in pathlib.Path(prefix).parent.iterdir():
        file.unlink()
    for name in "abc":
        setattr(live, name, Variable(np.zeros(1000, np.float32)))
    assert numbers(live) == {1}


def test_every_shard_is_held_by_a_reader(prefix):
    saved(prefix, 1, shards=3)
    reader = open_whole(LocalStorage(), prefix)
    for file in pathlib.Path(prefix).parent.iterdir():
        file.unlink()
    assert {float(reader.read(f"{name}/.ATTRIBUTES/VARIABLE_VALUE")[0]) for name in "abc"} == {1}


def test_a_checkpoint_is_replaced_if_its_index_has_other_bytes(prefix):
    saved(prefix, 1)
    with open_whole(LocalStorage(), prefix) as reader:
        assert not reader.is_replaced()
        content = pathlib.Path(index_path(prefix)).read_bytes()
        pathlib.Path(index_path(prefix)).unlink()
        assert not reader.is_replaced()
        pathlib.Path(index_path(prefix)).write_bytes(content)
        assert not reader.is_replaced()
        saved(prefix, 2)
        assert reader.is_replaced()


@pytest.fixture
def index_reads(monkeypatch):
    """The bytes that are read from indexes of local checkpoints."""
    counts = []
    read = LocalFile.read

    def counted(self, offset, length):
        if self.path.endswith(".index"):
            counts.append(length)
        return read(self, offset, length)

    monkeypatch.setattr(LocalFile, "read", counted)
    return counts


@pytest.fixture
def later(monkeypatch):
    """A function after which all files count as old: no change from now on has the time of an earlier one."""
    return lambda: monkeypatch.setattr(local_files, "_COARSEST", -(2**62))


def late_variables_read(prefix, index_reads, steps):
    """The bytes of the index that each of some late variables reads again, if time passes between them."""
    saved(prefix, 1)
    live = Checkpoint()
    live.read(prefix).expect_partial()
    found = []
    for name, step in zip("abc", steps, strict=True):
        step()
        index_reads.clear()
        setattr(live, name, Variable(np.zeros(1000, np.float32)))
        found.append(sum(index_reads))
    assert numbers(live) == {1}
    return found


def test_late_objects_of_a_closed_restore_do_not_read_an_old_index_again(prefix, index_reads, later):
    """Otherwise n late objects would read the whole index n times."""
    read = late_variables_read(prefix, index_reads, [lambda: None, later, lambda: None])
    assert read == [pathlib.Path(index_path(prefix)).stat().st_size] * 2 + [0]


def test_an_index_that_was_touched_is_compared_again(prefix, index_reads, later):
    later()
    read = late_variables_read(
        prefix, index_reads, [lambda: None, lambda: None, pathlib.Path(index_path(prefix)).touch]
    )
    assert read == [0, 0, pathlib.Path(index_path(prefix)).stat().st_size]


def test_an_index_that_was_just_written_may_change_at_the_same_time_and_is_compared(prefix):
    """A file system may count time in steps of seconds, and another program may write the index in place."""
    saved(prefix, 1)
    path = pathlib.Path(index_path(prefix))
    with contextlib.closing(LocalStorage().open(str(path))) as file:
        assert file.stamp is None


def test_an_index_that_is_changed_in_place_with_its_old_times_is_another(prefix, later):
    later()
    saved(prefix, 1)
    path = pathlib.Path(index_path(prefix))
    with open_whole(LocalStorage(), prefix) as reader:
        reader.release(for_good=False)
        before, content = path.stat(), path.read_bytes()
        time.sleep(0.02)  # a step of the clock of the file system
        with path.open("r+b") as file:
            file.write(content[:-20] + bytes(20))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert reader.is_replaced()


def test_what_was_released_is_read_again_from_its_files_but_never_from_others(prefix):
    saved(prefix, 1)
    with open_whole(LocalStorage(), prefix) as reader:
        reader.release(for_good=False)
        assert reader.read("a/.ATTRIBUTES/VARIABLE_VALUE")[0] == 1
        reader.release(for_good=False)
        saved(prefix, 2)
        saved(prefix, 3)
        assert str(reader.spec("a/.ATTRIBUTES/VARIABLE_VALUE")) == "float32[1000]"
        with pytest.raises(CheckpointNotFoundError, match="has replaced it"):
            reader.read("a/.ATTRIBUTES/VARIABLE_VALUE")


def test_a_deferred_restore_keeps_what_it_needs_while_others_overwrite(prefix):
    saved(prefix, 1)
    live = Checkpoint(a=Variable(np.zeros(1000, np.float32)), rest=module())
    live.read(prefix)
    for number in (2, 3):
        saved(prefix, number)
    live.b = Variable(np.zeros(1000, np.float32))
    assert set(live.b.numpy()) == {1}
