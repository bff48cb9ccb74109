"""Options: asynchronous saves, callbacks, shards, alignment, strictness, storages."""

import copy
import subprocess
import sys
import threading

import numpy as np
import pytest

import milepost
from milepost import (
    Checkpoint,
    CheckpointOptions,
    MaxShardSizePolicy,
    Module,
    StorageError,
    UnsupportedError,
    Variable,
)
from milepost.storage import MemoryStorage


def value(path, key="v/.ATTRIBUTES/VARIABLE_VALUE"):
    return milepost.load_variable(path, key)


class SlowStorage(MemoryStorage):
    """Creates no file before it is told to."""

    def __init__(self):
        super().__init__()
        self.go = threading.Event()

    def create(self, path):
        assert self.go.wait(30)
        return super().create(path)


@pytest.mark.parametrize("name", ["enable_async", "experimental_enable_async_checkpoint"])
def test_an_asynchronous_save_returns_at_once_and_saves_what_was_there_then(name):
    storage = SlowStorage()
    options = CheckpointOptions(**{name: True}, storage=storage)
    checkpoint = Checkpoint(v=Variable([1.0]), a=np.zeros(3))
    path = checkpoint.save("run/ckpt", options)
    checkpoint.v.assign([2.0])
    checkpoint.a[:] = 9
    assert storage.list("run") in ([], ["run"])
    storage.go.set()
    checkpoint.sync()
    live = Checkpoint(v=Variable([0.0]), a=np.ones(3))
    live.restore(path, options).assert_consumed()
    assert live.v[0] == 1
    assert live.a.tolist() == [0, 0, 0]


def test_the_state_file_and_callbacks_follow_an_asynchronous_save():
    storage = SlowStorage()
    called = []
    options = CheckpointOptions(enable_async=True, storage=storage, experimental_write_callbacks=[called.append])
    checkpoint = Checkpoint(v=Variable(1.0))
    path = checkpoint.save("run/ckpt", options)
    assert not called
    storage.go.set()
    checkpoint.sync()
    assert called == [path]
    assert storage.is_file("run/checkpoint")


def test_an_error_of_an_asynchronous_save_is_raised_by_sync_and_only_once(tmp_path):
    (tmp_path / "file").touch()
    checkpoint = Checkpoint(v=Variable(1.0))
    checkpoint.write(tmp_path / "file" / "ckpt", CheckpointOptions(enable_async=True))
    with pytest.raises(StorageError):
        checkpoint.sync()
    checkpoint.sync()


def test_an_error_of_an_asynchronous_save_is_raised_by_the_next_call(tmp_path):
    (tmp_path / "file").touch()
    checkpoint = Checkpoint(v=Variable(1.0))
    checkpoint.write(tmp_path / "file" / "ckpt", CheckpointOptions(enable_async=True))
    with pytest.raises(StorageError):
        checkpoint.write(tmp_path / "good")


def test_an_error_of_an_asynchronous_save_that_nobody_asks_for_is_told_at_the_end(tmp_path):
    (tmp_path / "file").touch()
    program = (
        "import milepost, sys\n"
        "checkpoint = milepost.Checkpoint(v=milepost.Variable(1.0))\n"
        "checkpoint.write(sys.argv[1], milepost.CheckpointOptions(enable_async=True))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "file" / "ckpt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 120
    assert "asynchronous save failed" in done.stderr


def test_a_process_that_ends_waits_for_its_save(tmp_path):
    program = (
        "import milepost, numpy, sys\n"
        "checkpoint = milepost.Checkpoint(v=milepost.Variable(numpy.ones(1 << 22)))\n"
        "checkpoint.write(sys.argv[1], milepost.CheckpointOptions(enable_async=True))\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "ckpt")], check=True)
    milepost.load_checkpoint(tmp_path / "ckpt").verify()


def test_a_restore_waits_for_the_save_in_flight(prefix):
    checkpoint = Checkpoint(v=Variable(1.0))
    path = checkpoint.save(prefix, CheckpointOptions(enable_async=True))
    checkpoint.v.assign(5.0)
    checkpoint.restore(path).assert_consumed()
    assert checkpoint.v == 1


def test_callbacks_take_no_argument_or_the_path_and_run_in_order(prefix):
    calls = []
    options = CheckpointOptions(
        experimental_write_callbacks=[lambda: calls.append("none"), lambda path: calls.append(path)]
    )
    path = Checkpoint(v=Variable(1.0)).save(prefix, options)
    assert calls == ["none", path]


@pytest.mark.parametrize("callback", [lambda a, b: None, lambda *, path: None, "print", 3])
def test_what_cannot_be_called_with_the_path_is_refused_as_a_callback(callback):
    with pytest.raises(ValueError, match="callback"):
        CheckpointOptions(experimental_write_callbacks=[callback])


@pytest.mark.parametrize("callback", [print, lambda *paths: None, lambda path, again=1: None, [].append])
def test_what_can_be_called_with_the_path_is_a_callback(callback, prefix):
    Checkpoint(v=Variable(1.0)).save(prefix, CheckpointOptions(experimental_write_callbacks=[callback]))


def test_a_bad_callback_that_is_set_later_is_refused_before_anything_is_written(prefix, tmp_path):
    options = CheckpointOptions()
    options.experimental_write_callbacks = [lambda a, b: None]
    with pytest.raises(ValueError, match="callback"):
        Checkpoint(v=Variable(1.0)).save(prefix, options)
    assert not list(tmp_path.iterdir())


def test_options_may_be_changed_between_saves(tmp_path):
    options = CheckpointOptions()
    checkpoint = Checkpoint(v=Variable(np.ones(10)))
    manager = milepost.CheckpointManager(checkpoint, tmp_path, max_to_keep=5, options=options)
    manager.save()
    options.experimental_sharding_callback = MaxShardSizePolicy(40)
    manager.save()
    assert (tmp_path / "ckpt-1.data-00000-of-00001").exists()
    assert (tmp_path / "ckpt-2.data-00000-of-00003").exists()


def test_a_save_in_the_background_goes_by_the_options_it_was_called_with(tmp_path):
    storage = SlowStorage()
    called, callbacks = [], []
    options = CheckpointOptions(enable_async=True, storage=storage, experimental_write_callbacks=callbacks)
    callbacks.append(called.append)
    checkpoint = Checkpoint(v=Variable(1.0))
    path = checkpoint.save("run/ckpt", options)
    callbacks.clear()
    options.data_alignment, options.storage, options.experimental_write_callbacks = 1, None, None
    storage.go.set()
    checkpoint.sync()
    assert called == [path]
    assert storage.is_file("run/checkpoint")


@pytest.mark.parametrize("options", [3, "async", CheckpointOptions, {"enable_async": True}])
def test_what_is_no_options_is_refused(prefix, tmp_path, options):
    checkpoint = Checkpoint(v=Variable(1.0))
    for call in (checkpoint.save, checkpoint.write):
        with pytest.raises(milepost.UnsupportedError, match="not options"):
            call(prefix, options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("policy", [3, "task", MaxShardSizePolicy, lambda tensors: tensors])
def test_what_does_not_say_how_to_shard_is_refused(policy):
    with pytest.raises(milepost.UnsupportedError, match="data files"):
        CheckpointOptions(experimental_sharding_callback=policy)


def test_shards_are_filled_up_to_a_size_and_large_tensors_cut(prefix, tmp_path):
    whole = np.arange(1000, dtype=np.float64).reshape(10, 100)
    checkpoint = Checkpoint(v=Variable(whole), w=Variable(np.ones(5)), s=Variable("text"), n=Variable(1))
    options = CheckpointOptions(experimental_sharding_callback=MaxShardSizePolicy(3000))
    path = checkpoint.write(prefix, options)
    assert sorted(each.name for each in tmp_path.glob("*.data*"))[-1] == "ckpt.data-00002-of-00003"
    np.testing.assert_array_equal(value(path), whole)
    live = Checkpoint(v=Variable(whole * 0), w=Variable(np.zeros(5)), s=Variable(""), n=Variable(0))
    live.read(path).assert_consumed()
    np.testing.assert_array_equal(live.v, whole)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 100, 10**6])
def test_any_shard_size_works(prefix, size):
    checkpoint = Checkpoint(v=Variable(np.arange(12.0).reshape(3, 4)), e=Variable(np.zeros((0, 3))), s=Variable(1.0))
    options = CheckpointOptions(experimental_sharding_callback=MaxShardSizePolicy(size))
    live = Checkpoint(v=Variable(np.zeros((3, 4))), e=Variable(np.zeros((0, 3))), s=Variable(0.0))
    live.read(checkpoint.write(prefix, options)).assert_consumed()
    assert live.v[2, 3] == 11


def test_a_name_that_is_gone_says_what_to_write_instead():
    with pytest.raises(AttributeError, match="leave experimental_sharding_callback out"):
        _ = milepost.ShardByTaskPolicy


def test_tensors_are_aligned_so_that_they_can_be_mapped(prefix):
    path = Checkpoint(a=Variable(np.int8(1)), v=Variable(np.arange(10.0))).write(prefix)
    mapped = milepost.load_checkpoint(path).map_tensor("v/.ATTRIBUTES/VARIABLE_VALUE")
    assert mapped.ctypes.data % 64 == 0
    np.testing.assert_array_equal(mapped, np.arange(10.0))
    with pytest.raises(ValueError, match="read-only"):
        mapped[0] = 1


def test_dense_files_have_no_gaps(prefix, tmp_path):
    Checkpoint(a=Variable(np.int8(1)), v=Variable(np.arange(10.0))).write(prefix, CheckpointOptions(data_alignment=1))
    data = (tmp_path / "ckpt.data-00000-of-00001").read_bytes()
    assert data[:81] == b"\1" + np.arange(10.0).tobytes()


def test_strict_raises_for_what_would_not_be_saved(prefix, tmp_path):
    class Special(list):
        pass

    made = Module()
    made.layers = Special([Variable(1.0)])
    with pytest.raises(ValueError, match="m/layers"):
        Checkpoint(m=made).write(prefix, CheckpointOptions(strict=True))
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_can_live_in_memory():
    options = CheckpointOptions(storage=MemoryStorage())
    path = Checkpoint(v=Variable(1.0)).save("anywhere/ckpt", options)
    live = Checkpoint(v=Variable(0.0))
    live.restore(path, options).assert_consumed()
    assert live.v == 1


@pytest.mark.parametrize("name", ["allow_unsaved", "each_process", "first_process", "experimental_write_callbacks"])
def test_a_copy_shares_no_list_with_its_original(name):
    given = [] if name == "experimental_write_callbacks" else ["a"]
    options = CheckpointOptions(**{name: given})
    copied = copy.copy(options)
    assert copied == options
    given.append(print if name == "experimental_write_callbacks" else "b")
    assert getattr(copied, name) == getattr(options, name)[:-1]


def test_a_copy_of_options_of_a_class_of_the_program_has_its_attributes():
    class Options(CheckpointOptions):
        pass

    options = Options(strict=True)
    options.note = "mine"
    copied = copy.copy(options)
    assert (type(copied), copied.strict, copied.note) == (Options, True, "mine")


def test_a_status_does_not_follow_later_changes_of_the_options(tmp_path):
    path = Checkpoint(v=Variable(1.0)).write(tmp_path / "ckpt")
    options = CheckpointOptions(allow_unsaved=["when"])
    live = Checkpoint(v=Variable(0.0))
    live.when = np.array([None], object)
    status = live.read(path, options)
    options.allow_unsaved.clear()
    status.assert_existing_objects_matched()


def test_a_switch_that_is_neither_true_nor_false_is_named():
    with pytest.raises(UnsupportedError) as caught:
        CheckpointOptions(enable_async="yes")
    assert caught.value.key == "enable_async"
    assert "yes" in caught.value.found
