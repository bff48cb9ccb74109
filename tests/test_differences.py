"""Where milepost deliberately differs from TensorFlow: a test for each line of the table in docs/design.md."""

import os
import pathlib

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, Module, SkippedCheckpointWarning, UntrackedWarning, Variable
from milepost.testing import FaultyStorage
from tests.objects import module


def test_every_line_of_the_table_has_a_test():
    """The docstring of each test is what its line of the table says of TensorFlow."""
    text = (pathlib.Path(__file__).parent.parent / "docs" / "design.md").read_text()
    table = text.split("| TensorFlow | milepost |")[1].split("\n\n")[0]
    lines = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    tests = [value for name, value in globals().items() if name.startswith("test_") and "every_line" not in name]
    assert [" ".join(test.__doc__.split()) for test in tests] == lines


def test_commit_is_durable_and_atomic():
    """no fsync; `.index` written in place"""
    storage = FaultyStorage()
    options = milepost.CheckpointOptions(storage=storage)
    Checkpoint(v=Variable(1.0)).write("run/ckpt", options)
    for state in storage.crash_states():
        live = Checkpoint(v=Variable(0.0))
        live.read("run/ckpt", milepost.CheckpointOptions(storage=state)).assert_consumed()
        assert live.v == 1


def test_a_failing_restore_changes_nothing(tmp_path):
    """a failing restore leaves earlier keys changed"""
    path = Checkpoint(a=Variable(1.0), b=Variable([1.0, 2.0])).write(tmp_path / "ckpt")
    live = Checkpoint(a=Variable(0.0), b=Variable([0.0]))
    with pytest.raises(ValueError, match="wrong shape"):
        live.read(path)
    assert live.a == 0


def test_errors_of_deferred_restores_in_lists_are_raised(tmp_path):
    """errors inside deferred restores are swallowed in list wrappers"""
    path = Checkpoint(l=[Variable([1.0])]).write(tmp_path / "ckpt")
    live = Checkpoint(l=[])
    live.read(path).expect_partial()
    with pytest.raises(ValueError, match="wrong shape"):
        live.l.append(Variable([1.0, 2.0]))
    assert live.l == []


def test_a_saved_container_that_meets_a_live_variable_is_reported(tmp_path):
    """a checkpoint's container meets a live variable: all assertions pass"""
    path = Checkpoint(x=module(v=Variable(1.0))).write(tmp_path / "ckpt")
    status = Checkpoint(x=Variable(0.0)).read(path).expect_partial()
    with pytest.raises(AssertionError, match="missing: x"):
        status.assert_existing_objects_matched()


def test_two_saved_objects_of_one_live_object_are_reported(tmp_path):
    """two saved objects meet one live object: all assertions pass"""
    path = Checkpoint(a=Variable(1.0), b=Variable(2.0)).write(tmp_path / "ckpt")
    shared = Variable(0.0)
    status = Checkpoint(a=shared, b=shared).read(path).expect_partial()
    with pytest.raises(AssertionError, match="unexpected: b"):
        status.assert_consumed()


def test_the_graph_is_what_the_object_holds_now(tmp_path):
    """`m.c = 7` over a variable still saves the variable"""
    made = module(c=Variable(1.0))
    made.c = 7
    with pytest.warns(
        UntrackedWarning, match="m/c: not saved: this attribute was a tracked object and is now a number"
    ):
        path = Checkpoint(m=made).write(tmp_path / "ckpt")
    assert milepost.list_variables(path) == [("_CHECKPOINTABLE_OBJECT_GRAPH", [])]


def test_a_save_carries_over_what_still_waits(tmp_path):
    """a save loses deferred values"""
    path = Checkpoint(m=module(v=Variable(1.0))).write(tmp_path / "old")
    live = Checkpoint(m=Module())
    live.read(path)
    again = Checkpoint(m=module(v=Variable(0.0)))
    again.read(live.write(tmp_path / "new")).assert_consumed()
    assert again.m.v == 1


def test_lists_and_dicts_may_be_changed_in_any_way(tmp_path):
    """mutating lists and dicts makes saving impossible"""
    made = module(l=[Variable(float(n)) for n in range(5)], d={"a": Variable(1.0), "b": Variable(2.0)})
    made.l[0] = Variable(9.0)
    made.l.insert(1, Variable(8.0))
    made.l.pop()
    made.l.reverse()
    made.l.sort(key=float)
    made.d.pop("a")
    made.d["b"] = Variable(3.0)
    path = Checkpoint(m=made).write(tmp_path / "ckpt")
    saved = [milepost.load_variable(path, f"m/l/{n}/.ATTRIBUTES/VARIABLE_VALUE") for n in range(5)]
    assert saved == [1, 2, 3, 8, 9]
    assert milepost.load_variable(path, "m/d/b/.ATTRIBUTES/VARIABLE_VALUE") == 3


def test_containers_that_cannot_be_tracked_are_warned_of(tmp_path):
    """unsupported containers that hold trackable objects are silently not saved"""
    made = module(s={np.float32(1)})
    with pytest.warns(UntrackedWarning, match="m/s"):
        Checkpoint(m=made).write(tmp_path / "ckpt")
    with pytest.raises(ValueError, match="m/s"):
        Checkpoint(m=made).write(tmp_path / "ckpt", milepost.CheckpointOptions(strict=True))


def test_the_list_that_was_assigned_is_the_state(tmp_path):
    """changing the list or dict that was assigned, rather than the attribute, makes saving impossible; a restore does not change it"""
    layers, meta = [], {"epoch": 0}
    checkpoint = Checkpoint(m=module(layers=layers), meta=meta)
    layers.append(Variable(1.0))
    meta["epoch"] = 3
    path = checkpoint.write(tmp_path / "ckpt")
    assert milepost.load_variable(path, "m/layers/0") == 1
    meta["epoch"] = 4
    checkpoint.read(path)
    assert meta["epoch"] == 3


def test_latest_checkpoint_verifies_and_falls_back(tmp_path):
    """`latest_checkpoint` trusts one path"""
    checkpoint = Checkpoint(v=Variable(np.arange(100.0)))
    manager = CheckpointManager(checkpoint, tmp_path, max_to_keep=3)
    first, second = manager.save(), manager.save()
    data = pathlib.Path(second + ".data-00000-of-00001")
    damaged = bytearray(data.read_bytes())
    damaged[10] ^= 1
    data.write_bytes(damaged)
    with pytest.warns(SkippedCheckpointWarning, match="ckpt-2"):
        assert milepost.latest_checkpoint(tmp_path) == first


def test_a_process_that_did_not_restore_does_not_overwrite(tmp_path):
    """a fresh process that did not restore overwrites `ckpt-1`, or adds to an older run's series"""
    Checkpoint(v=Variable(1.0)).save(tmp_path / "ckpt")
    fresh = Checkpoint(v=Variable(2.0))
    with pytest.raises(FileExistsError, match="restore the latest checkpoint first"):
        fresh.save(tmp_path / "ckpt")
    assert int(fresh.save_counter) == 0
    fresh.save(tmp_path / "ckpt", milepost.CheckpointOptions(overwrite=True))
    assert milepost.load_variable(tmp_path / "ckpt-1", "v/.ATTRIBUTES/VARIABLE_VALUE") == 2


def test_an_index_file_is_understood_as_its_prefix(tmp_path):
    """`.index` given as a prefix opens as an empty checkpoint"""
    path = Checkpoint(v=Variable(1.0)).write(tmp_path / "ckpt")
    live = Checkpoint(v=Variable(0.0))
    live.read(path + ".index").assert_consumed()
    assert live.v == 1


def test_names_are_plain_names(tmp_path):
    """prefixes with `[` cannot be found again"""
    path = Checkpoint(v=Variable(1.0)).save(tmp_path / "a[1]*?" / "ckpt[2]")
    assert milepost.latest_checkpoint(tmp_path / "a[1]*?") == path
    assert milepost.tensorflow1.checkpoint_exists(path)
    Checkpoint(v=Variable(0.0)).restore(path).assert_consumed()


def test_a_state_file_that_cannot_be_understood_is_an_error(tmp_path):
    """a state file that cannot be understood counts as none"""
    Checkpoint(v=Variable(1.0)).save(tmp_path / "ckpt")
    (tmp_path / "checkpoint").write_text("junk {")
    with pytest.raises(ValueError, match="checkpoint") as caught:
        milepost.latest_checkpoint(tmp_path)
    assert isinstance(caught.value, milepost.StateFileError)


def test_a_failed_save_uses_no_number(tmp_path):
    """a failed save has used up its number"""
    (tmp_path / "file").touch()
    checkpoint = Checkpoint(v=Variable(1.0))
    with pytest.raises(OSError, match="directory"):
        checkpoint.save(tmp_path / "file" / "ckpt")
    assert checkpoint.save(tmp_path / "ckpt") == str(tmp_path / "ckpt-1")


def test_a_manager_that_finds_none_of_its_checkpoints_does_not_start_anew(tmp_path):
    """`restore_or_initialize` starts anew if no checkpoint that the state file names is there"""
    manager = CheckpointManager(Checkpoint(v=Variable(1.0)), tmp_path, max_to_keep=1)
    pathlib.Path(manager.save() + ".index").unlink()
    manager = CheckpointManager(Checkpoint(v=Variable(0.0)), tmp_path, max_to_keep=1)
    with pytest.warns(SkippedCheckpointWarning), pytest.raises(milepost.CheckpointNotFoundError, match="state file"):
        manager.restore_or_initialize()


def test_checkpoints_without_timestamps_are_managed(tmp_path):
    """checkpoints named by a state file without timestamps are never swept"""
    checkpoint = Checkpoint(v=Variable(1.0))
    checkpoint.save(tmp_path / "ckpt")
    manager = CheckpointManager(checkpoint, tmp_path, max_to_keep=1)
    manager.save()
    assert sorted(each for each in os.listdir(tmp_path) if each.endswith(".index")) == ["ckpt-2.index"]


def test_names_of_values_may_contain_dots_and_slashes(tmp_path):
    """values of custom objects with `.` or `/` in their names cannot be restored"""

    class State(milepost.TensorState):
        tensors = None

        def serialize(self):
            return {"a/b": 1.0, "c.d": 2.0}

        def deserialize(self, tensors):
            self.tensors = {name: float(value) for name, value in tensors.items()}

    live = State()
    Checkpoint(s=live).read(Checkpoint(s=State()).write(tmp_path / "ckpt")).assert_consumed()
    assert live.tensors == {"a/b": 1, "c.d": 2}


def test_a_checksum_error_names_key_file_and_offset(tmp_path):
    """a checksum error names a shard"""
    path = Checkpoint(v=Variable(np.arange(100.0))).write(tmp_path / "ckpt")
    data = pathlib.Path(path + ".data-00000-of-00001")
    damaged = bytearray(data.read_bytes())
    damaged[10] ^= 1
    data.write_bytes(damaged)
    live = Checkpoint(v=Variable(np.zeros(100)))
    with pytest.raises(milepost.CorruptCheckpointError) as caught:
        live.read(path)
    message = str(caught.value)
    assert caught.value.key == "v/.ATTRIBUTES/VARIABLE_VALUE"
    assert str(data) in message
    assert "at byte 0" in message
    assert caught.value.expected
    assert caught.value.found
    assert not np.asarray(live.v).any()


def test_a_falsy_root_is_a_root(tmp_path):
    """`Checkpoint(Variable(0.0))` ignores its root, which is falsy"""
    path = Checkpoint(Variable(0.0)).write(tmp_path / "ckpt")
    assert milepost.list_variables(path)[0][0] == "/.ATTRIBUTES/VARIABLE_VALUE"


def test_variables_have_no_name_unless_they_are_given_one():
    """the default name of a variable is `Variable`"""
    assert Variable(1.0).name is None


def test_arrays_and_numpy_scalars_are_values(tmp_path):
    """arrays and NumPy scalars in attributes are silently not saved"""
    made = module(a=np.ones(3), s=np.float32(2))
    live = module(a=np.zeros(3), s=np.float32(0))
    Checkpoint(m=live).read(Checkpoint(m=made).write(tmp_path / "ckpt")).assert_consumed()
    assert live.a.tolist() == [1, 1, 1]
    assert live.s == 2


def test_numbers_text_and_none_in_a_checkpoint_are_values(tmp_path):
    """numbers, text and None in a `Checkpoint`, or in lists, dicts and tuples in it, are refused or silently
    not saved"""
    path = Checkpoint(epoch=3, meta={"name": "run", "best": None}).write(tmp_path / "ckpt")
    live = Checkpoint(epoch=0, meta={})
    live.read(path).assert_consumed()
    assert (live.epoch, live.meta) == (3, {"name": "run", "best": None})


def test_a_directory_to_write_to_is_made(tmp_path):
    """a `write` to a directory that does not exist fails"""
    path = Checkpoint(v=Variable(1.0)).write(tmp_path / "not" / "there" / "ckpt")
    assert milepost.tensorflow1.checkpoint_exists(path)


def test_the_save_counter_is_a_variable_of_milepost():
    """`save_counter` is a `tf.Variable`"""
    assert type(Checkpoint().save_counter) is Variable


def test_a_child_cannot_hide_a_method():
    """a child called `save` hides the method"""
    with pytest.raises(milepost.UntrackableError, match="save_="):
        Checkpoint(save=Variable(1.0))


def test_functions_of_tensors_do_not_shard():
    """any function of tensors may cut a save into files"""
    with pytest.raises(milepost.UnsupportedError, match="MaxShardSizePolicy"):
        milepost.CheckpointOptions(experimental_sharding_callback=lambda tensors: [tensors])


def test_a_waiting_value_arrives_after_its_checkpoint_was_deleted(tmp_path):
    """a deferred value is lost when its checkpoint is deleted"""
    path = Checkpoint(v=Variable(1.0)).save(tmp_path / "ckpt")
    live = Checkpoint()
    live.restore(path)
    milepost.tensorflow1.remove_checkpoint(path)
    live.v = Variable(0.0)
    assert live.v == 1
