"""`save(files=...)`: small files are in the same commit as their checkpoint, and live as long as it."""

import os
import signal
import warnings

import numpy as np
import pytest

import milepost
from milepost import (
    Checkpoint,
    CheckpointManager,
    CheckpointNotFoundError,
    CheckpointOptions,
    CorruptCheckpointError,
    MaxShardSizePolicy,
    UnsupportedError,
    Variable,
)
from milepost.bundle import find_prefixes, open_bundle
from milepost.errors import SkippedCheckpointWarning, UnrestoredWarning
from milepost.series.files import read_files
from milepost.storage import LocalStorage
from milepost.testing import FaultyStorage
from tests import programs
from tests.several.test_in_threads import together

FILES = {"tokenizer/vocab.json": b'{"a": 1}', "tokenizer/merges.txt": b"", "notes": bytes(range(256))}


@pytest.fixture
def directory(tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    (made / "vocab.json").write_bytes(FILES["tokenizer/vocab.json"])
    (made / "merges.txt").write_bytes(b"")
    return made


def checkpoint(value=0.0):
    return Checkpoint(v=Variable(np.full(10, value)))


def manager(directory, **options):
    return CheckpointManager(checkpoint(), directory, 2, **options)


def test_they_are_read_back_and_written_out(directory, tmp_path):
    saved = manager(tmp_path / "run")
    path = saved.save(3, metrics={"loss": 0.5}, files={"tokenizer": directory, "notes": FILES["notes"]})
    assert (saved.files(3), saved.metrics(3)) == (FILES, {"loss": 0.5})
    assert milepost.load_checkpoint(path).files(to=tmp_path / "out") == FILES
    assert (tmp_path / "out" / "tokenizer" / "vocab.json").read_bytes() == FILES["tokenizer/vocab.json"]
    assert saved.files(3, tmp_path / "out2") == FILES
    assert sorted(os.listdir(tmp_path / "out2")) == ["notes", "tokenizer"]


def test_a_checkpoint_without_files_has_none(tmp_path):
    saved = manager(tmp_path)
    saved.save(1)
    assert saved.files(1) == {}
    with pytest.raises(CheckpointNotFoundError):
        saved.files(2)


def test_each_checkpoint_has_its_own(tmp_path):
    saved = manager(tmp_path)
    for step in (1, 2):
        saved.save(step, files={"step": str(step).encode()})
    assert [saved.files(step) for step in (1, 2)] == [{"step": b"1"}, {"step": b"2"}]


def test_what_cannot_be_saved_saves_nothing_and_counts_nothing(tmp_path):
    saved = manager(tmp_path / "run")
    with pytest.raises(UnsupportedError, match="no file or directory"):
        saved.save(files={"tokenizer": tmp_path / "none"})
    assert (int(saved.checkpoint.save_counter), saved.steps) == (0, [])


def test_an_error_in_the_files_is_raised_although_failed_saves_are_tolerated(tmp_path):
    saved = manager(tmp_path, on_failure=milepost.Tolerate())
    with pytest.raises(UnsupportedError, match="no file or directory"):
        saved.save(files={"tokenizer": tmp_path / "none"})


def test_a_directory_with_the_checkpoints_in_it_is_refused(tmp_path):
    (tmp_path / "code.py").write_text("")
    saved = manager(tmp_path / "below" / "run")
    saved.save(1, files={"code": tmp_path})  # before there are any
    for directory in (tmp_path, tmp_path / "below", tmp_path / "below" / "run"):
        with pytest.raises(UnsupportedError, match="has the checkpoints in it"):
            saved.save(2, files={"code": directory})
    saved.save(2, files={"code": tmp_path / "code.py"})
    assert saved.files(1) == {"code/code.py": b""}


def test_an_asynchronous_save_has_read_them_when_it_returns(directory, tmp_path):
    saved = manager(tmp_path / "run", options=CheckpointOptions(enable_async=True))
    saved.save(1, files={"tokenizer": directory})
    (directory / "vocab.json").write_text("other")
    saved.sync()
    assert saved.files(1)["tokenizer/vocab.json"] == FILES["tokenizer/vocab.json"]


def test_they_go_with_values_in_several_data_files(tmp_path):
    options = CheckpointOptions(experimental_sharding_callback=MaxShardSizePolicy(40))
    saved = manager(tmp_path, options=options)
    path = saved.save(1, files=FILES)
    assert saved.files(1) == FILES
    milepost.load_checkpoint(path).verify()
    assert len([name for name in os.listdir(tmp_path) if ".data" in name]) > 1


def test_an_incremental_save_links_those_that_have_not_changed(tmp_path):
    saved = manager(tmp_path, options=CheckpointOptions(incremental=True))
    large = {"large": bytes(1 << 17)}
    for step in (1, 2):
        saved.checkpoint.v.assign(np.full(10, step))
        saved.save(step, files=large | {"step": bytes([step])})
    assert [saved.files(step)["step"] for step in (1, 2)] == [b"\1", b"\2"]
    assert saved.files(2)["large"] == large["large"]
    assert any(os.stat(tmp_path / name).st_nlink == 2 for name in os.listdir(tmp_path) if "ckpt-2.data" in name)
    saved.delete(1)
    milepost.load_checkpoint(tmp_path / "ckpt-2").verify()


def test_damage_to_a_file_is_damage_to_the_checkpoint(tmp_path):
    saved = manager(tmp_path)
    for step in (1, 2):
        saved.checkpoint.v.assign(np.full(10, step))
        saved.save(step, files={"text": b"unmistakable"})
    (data,) = tmp_path.glob("ckpt-2.data*")
    data.write_bytes(data.read_bytes().replace(b"unmistakable", b"Unmistakable"))
    with pytest.raises(CorruptCheckpointError):
        saved.files(2)
    fresh = manager(tmp_path)
    with pytest.warns(SkippedCheckpointWarning, match="ckpt-2"):
        assert fresh.restore_or_initialize().endswith("ckpt-1")


def test_no_restore_and_no_other_look_at_values_takes_them_for_values(tmp_path):
    with_files, without = manager(tmp_path / "a"), manager(tmp_path / "b")
    path, other = with_files.save(1, files=FILES), without.save(1)
    fresh = checkpoint(1.0)
    status = fresh.restore(path).assert_consumed()
    assert not [entry for entry in status.report() if "FILES" in entry.key]
    assert milepost.load(path).keys() == milepost.load(other).keys()
    assert milepost.digest(path) == milepost.digest(other) == milepost.digest(with_files.checkpoint)
    done = milepost.convert(path, tmp_path / "values.npz")
    assert set(done.tensors) == set(milepost.convert(other, tmp_path / "others.npz").tensors)
    assert any("files" in each and "notes" in each for each in done.not_carried_over)


def test_a_conversion_to_a_checkpoint_keeps_them(tmp_path):
    path = manager(tmp_path / "run").save(1, files=FILES)
    done = milepost.convert(path, tmp_path / "copy", rename={"v": "w"})
    assert milepost.load_checkpoint(tmp_path / "copy").files() == FILES
    assert not done.not_carried_over


def test_a_name_in_the_program_cannot_be_that_of_a_file(tmp_path):
    """The path of an object never begins with a point and a letter."""
    saved = Checkpoint()
    setattr(saved, ".MILEPOST_FILES", Checkpoint(a=Variable(1.0)))
    path = saved.write(tmp_path / "ckpt")
    assert milepost.load_checkpoint(path).files() == {}
    assert milepost.digest(path) == milepost.digest(saved)


def test_tensorflow_reads_such_a_checkpoint(tmp_path):
    tf = pytest.importorskip("tensorflow")
    path = manager(tmp_path).save(1, files=FILES)
    reader = tf.train.load_checkpoint(path)
    assert bytes(reader.get_tensor(".MILEPOST_FILES/notes")) == FILES["notes"]
    assert reader.get_variable_to_shape_map()[".MILEPOST_FILES/tokenizer/merges.txt"] == [0]
    restored = tf.train.Checkpoint(v=tf.Variable(np.ones(10)))
    restored.restore(path).assert_consumed()
    assert restored.v.numpy().tolist() == [0.0] * 10


def test_a_manager_of_trees_saves_them(tmp_path):
    jax = pytest.importorskip("milepost.jax")
    saved = jax.TreeManager(tmp_path)
    saved.save({"w": np.ones(3)}, 1, files=FILES)
    saved.save_items({"state": {"w": np.ones(3)}}, 2, files={"a": b"b"})
    assert (saved.files(1), saved.files(2)) == (FILES, {"a": b"b"})


@pytest.mark.parametrize("incremental", [False, True])
def test_of_several_processes_those_of_process_0_are_saved(incremental, tmp_path):
    def work(rank, options):
        saved = manager(tmp_path / "run", options=CheckpointOptions(incremental=incremental, **options))
        for step in (1, 2):
            saved.checkpoint.v.assign(np.full(10, step))
            saved.save(step, files={"rank": str(rank).encode(), "large": bytes(1 << 17)})
        return {step: saved.files(step)["rank"] for step in (1, 2)}

    assert together(work, tmp_path) == [{1: b"0", 2: b"0"}] * 2
    for step in (1, 2):
        milepost.load_checkpoint(tmp_path / "run" / f"ckpt-{step}").verify()
        fresh = checkpoint()
        fresh.restore(tmp_path / "run" / f"ckpt-{step}").assert_consumed()
        assert np.asarray(fresh.v).tolist() == [float(step)] * 10


def test_an_error_in_the_files_of_process_0_fails_on_all(tmp_path):
    def work(rank, options):
        manager(tmp_path / "run", options=CheckpointOptions(**options)).save(files={"a": tmp_path / "none"})

    results = together(work, tmp_path)
    assert all("no file or directory" in str(result) for result in results)
    assert milepost.latest_checkpoint(tmp_path / "run") is None


class TestBothOrNone:
    """A checkpoint is there with its values and its files, or not at all."""

    @staticmethod
    def save(storage, steps, **options):
        saved = manager("run", options=CheckpointOptions(storage=storage, **options))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnrestoredWarning)
            saved.restore_or_initialize()
        for step in steps:
            saved.checkpoint.v.assign(np.full(10, step))
            saved.save(step, files={"step": str(step).encode(), "large": bytes(5000)})

    @staticmethod
    def found(storage):
        steps = []
        for prefix in find_prefixes(storage, "run"):
            with open_bundle(storage, prefix) as reader:
                reader.verify()
                files, value = read_files(reader), reader.read("v/.ATTRIBUTES/VARIABLE_VALUE")
            step = int(prefix.rpartition("-")[2])
            assert files == {"step": str(step).encode(), "large": bytes(5000)}, prefix
            assert value.tolist() == [step] * 10, prefix
            steps.append(step)
        return sorted(steps)

    @pytest.mark.parametrize("incremental", [False, True])
    def test_whenever_the_power_is_cut(self, incremental):
        storage = FaultyStorage()
        self.save(storage, [1], incremental=incremental)
        storage.settle()
        self.save(storage, [2], incremental=incremental)
        outcomes = set()
        for point in storage.crash_points():
            for state in storage.crash_states(point, limit=12):
                outcomes.add(tuple(self.found(state)))
        assert outcomes == {(1,), (1, 2)}

    CODE = """
import os, signal, sys
import numpy as np
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Variable
from milepost.storage import LocalStorage

last = int(sys.argv[2])

class Killing(LocalStorage):
    count = 0

def counted(name):
    method = getattr(LocalStorage, name)
    def call(*arguments):
        if Killing.count == last:
            os.kill(os.getpid(), signal.SIGKILL)
        Killing.count += 1
        result = method(*arguments)
        if name == "create":
            for each in ("write", "sync", "close"):
                watch(result, each)
        return result
    return call

def watch(file, name):
    method = getattr(file, name)
    def call(*arguments):
        if Killing.count == last:
            os.kill(os.getpid(), signal.SIGKILL)
        Killing.count += 1
        return method(*arguments)
    setattr(file, name, call)

for name in ("create", "rename", "remove", "link", "make_directory", "sync_directory"):
    setattr(Killing, name, counted(name))
checkpoint = Checkpoint(v=Variable(np.zeros(10)))
manager = CheckpointManager(checkpoint, sys.argv[1], 2, options=CheckpointOptions(storage=Killing()))
manager.restore_or_initialize()
checkpoint.v.assign(np.full(10, 2))
manager.save(2, files={"step": b"2", "large": bytes(5000)})
"""

    def test_whenever_the_process_is_killed(self, tmp_path, monkeypatch):
        """At every operation of the file system that changes something."""
        monkeypatch.chdir(tmp_path)
        outcomes, number, is_killed = [], 0, True
        while is_killed:
            os.mkdir(str(number))
            os.chdir(str(number))
            self.save(LocalStorage(), [1])
            command = ["-c", self.CODE, "run", str(number)]
            with (
                open(os.devnull, "w", encoding="utf-8") as nothing,
                programs.start(
                    command, imports=["numpy"], directory=os.getcwd(), stdout=nothing, stderr=nothing
                ) as process,
            ):
                is_killed = process.wait() == -signal.SIGKILL
            steps = self.found(LocalStorage())
            assert steps in ([1], [1, 2])
            outcomes.append(len(steps))
            self.save(LocalStorage(), [3])
            assert self.found(LocalStorage())[-1] == 3
            os.chdir("..")
            number += 1
        assert outcomes == sorted(outcomes)
        assert number > 8
        assert set(outcomes) == {1, 2}
