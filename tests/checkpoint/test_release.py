"""When a restore lets go of its files, and how it is ended."""

import gc
import pathlib
import sys
import warnings
import weakref

import numpy as np
import pytest

import milepost
from milepost import (
    Checkpoint,
    CheckpointManager,
    CheckpointNotFoundError,
    Module,
    SlotOwner,
    UnrestoredWarning,
    Variable,
)
from milepost.deferred import table
from milepost.storage import LocalStorage
from tests.bundle import bundles
from tests.objects import module
from tests.systems import open_descriptors

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="lists the open files of Linux")


@pytest.fixture(autouse=True)
def no_collections():
    """What is released must be so without a garbage collection."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def open_files(directory):
    """The files below a directory that this process has open, removed ones too."""
    return [path for path in open_descriptors() if path.startswith(str(directory))]


def test_a_restore_that_nothing_waits_for_holds_no_file_open(prefix, tmp_path):
    path = Checkpoint(v=Variable(1.0)).write(prefix)
    live = Checkpoint(v=Variable(0.0))
    status = live.read(path)
    assert open_files(tmp_path) == []
    for file in tmp_path.iterdir():
        file.unlink()
    assert status.assert_consumed().report().counts()["matched"] == 1


def test_files_are_closed_when_the_last_value_has_come(prefix, tmp_path):
    path = Checkpoint(v=Variable(1.0), w=Variable(2.0)).write(prefix)
    live = Checkpoint()
    status = live.read(path)
    live.v = Variable(0.0)
    assert open_files(tmp_path)
    live.w = Variable(0.0)
    assert open_files(tmp_path) == []
    status.assert_consumed()


def test_files_are_closed_when_status_and_checkpoint_are_gone(prefix, tmp_path):
    path = Checkpoint(v=Variable(1.0), w=Variable(2.0)).write(prefix)
    live = Checkpoint(v=Variable(0.0))
    status = live.read(path)
    assert open_files(tmp_path)
    with pytest.warns(UnrestoredWarning, match=r"w/\.ATTRIBUTES"):
        del live, status
    assert open_files(tmp_path) == []


def test_files_are_closed_when_the_restore_is_declared_partial(prefix, tmp_path):
    path = Checkpoint(v=Variable(1.0), w=Variable(2.0)).write(prefix)
    live = Checkpoint(v=Variable(0.0))
    live.read(path).expect_partial()
    assert open_files(tmp_path) == []
    live.w = Variable(0.0)
    assert live.w == 2


@pytest.mark.parametrize("gone", [True, False], ids=["removed", "replaced"])
def test_a_late_object_of_a_partial_restore_is_refused_if_its_file_is_gone(prefix, tmp_path, gone):
    path = Checkpoint(v=Variable(1.0)).write(prefix)
    live = Checkpoint()
    live.read(path).expect_partial()
    if gone:
        for file in tmp_path.iterdir():
            file.unlink()
    else:
        Checkpoint(v=Variable(2.0)).write(prefix)
    with pytest.raises(CheckpointNotFoundError, match="missing" if gone else "has replaced it"):
        live.v = Variable(0.0)
    assert not hasattr(live, "v")


@pytest.mark.parametrize("mode", ["plain", "partial", "fresh", "kept"])
@pytest.mark.parametrize("kind", ["object", "list", "slots"])
def test_an_evaluator_has_as_many_files_open_after_many_restores_as_after_one(tmp_path, mode, kind):
    def train():
        if kind == "object":
            return Checkpoint(model=Variable([1.0]), optimizer=module(m=Variable([2.0]), n=module(v=Variable(1))))
        if kind == "list":
            return Checkpoint(model=Variable([1.0]), history=[Variable(1.0)])
        net, optimizer = module(w=Variable([1.0])), SlotOwner()
        optimizer.add_slot(net.w, "m", [3.0])
        return Checkpoint(net=net, optimizer=optimizer)

    def evaluator():
        if kind == "slots":
            return Checkpoint(net=module(w=Variable([0.0])))
        return Checkpoint(model=Variable([0.0]))

    trainer, live = train(), evaluator()
    manager = CheckpointManager(trainer, str(tmp_path), max_to_keep=2)
    counts, kept = [], []
    for _ in range(6):
        if kind == "list":
            trainer.history.append(Variable(2.0))
        path = manager.save()
        status = live.restore(path)
        if mode == "partial":
            status.expect_partial()
        elif mode == "fresh":
            live = evaluator()
        elif mode == "kept":
            kept.append(status)
        counts.append(len(open_files(tmp_path)))
    assert len(set(counts[1:])) == 1
    assert counts[-1] <= 4


def test_a_newer_restore_of_the_same_object_takes_over_what_waits(prefix, tmp_path):
    for number in (1, 2):
        Checkpoint(m=module(v=Variable(float(number)))).write(f"{prefix}{number}")
    live = Checkpoint(m=Module())
    before = len(table._entries)
    live.read(prefix + "1")
    live.read(prefix + "2")
    assert len(table._entries) == before + 1
    assert [file for file in open_files(tmp_path) if "ckpt1" in file] == []
    live.m.v = Variable(0.0)
    assert live.m.v == 2


def test_an_older_restore_still_gives_what_a_newer_one_does_not_have(prefix):
    Checkpoint(v=Variable(1.0), w=Variable(1.0)).write(prefix + "1")
    Checkpoint(v=Variable(2.0)).write(prefix + "2")
    live = Checkpoint()
    live.read(prefix + "1")
    live.read(prefix + "2")
    live.v, live.w = Variable(0.0), Variable(0.0)
    assert (live.v, live.w) == (2, 1)


def test_a_save_carries_over_what_the_newest_restore_waits_for(prefix):
    for number in (1, 2):
        Checkpoint(v=Variable(float(number))).write(f"{prefix}{number}")
    live = Checkpoint()
    statuses = [live.read(prefix + "1"), live.read(prefix + "2")]
    path = live.write(prefix)
    assert milepost.load_variable(path, "v/.ATTRIBUTES/VARIABLE_VALUE") == 2
    del statuses


def test_stop_waiting_leaves_later_objects_as_they_are(prefix, tmp_path):
    path = Checkpoint(v=Variable(1.0), net=module(w=Variable(2.0))).write(prefix)
    live = Checkpoint(net=Module())
    status = live.read(path).stop_waiting()
    assert open_files(tmp_path) == []
    live.v, live.net.w = Variable(5.0), Variable(6.0)
    assert (live.v, live.net.w) == (5, 6)
    assert [entry.key[0] for entry in status.stop_waiting().report().unexpected] == ["n", "v"]


def test_stop_waiting_ends_this_restore_alone(prefix):
    Checkpoint(v=Variable(1.0), w=Variable(1.0)).write(prefix + "1")
    Checkpoint(v=Variable(2.0)).write(prefix + "2")
    live = Checkpoint()
    live.read(prefix + "1").stop_waiting()
    live.read(prefix + "2")
    live.v, live.w = Variable(0.0), Variable(0.0)
    assert (live.v, live.w) == (2, 0)


def test_a_save_after_stop_waiting_takes_nothing_along(prefix):
    path = Checkpoint(v=Variable(1.0)).write(prefix)
    live = Checkpoint()
    live.read(path).stop_waiting()
    assert [key for key, _ in milepost.list_variables(live.write(prefix)) if key[0] == "v"] == []


def test_no_status_keeps_its_restore_in_a_circle(prefix):
    path = Checkpoint(v=Variable(1.0), w=Variable(2.0)).write(prefix)
    live = Checkpoint(v=Variable(0.0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        status = live.read(path)
        status.report()
        del status
        assert not caught
        del live
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_values_that_wait_keep_the_newest_files_alone_on_disk(tmp_path):
    trainer = Checkpoint(model=Variable(np.ones(1000)), optimizer=Variable(2.0))
    manager = CheckpointManager(trainer, str(tmp_path), max_to_keep=1)
    live = Checkpoint(model=Variable(np.zeros(1000)))
    for _ in range(4):
        live.restore(manager.save())
    assert not [path for path in open_files(tmp_path) if "deleted" in path]
    assert len(list(pathlib.Path(tmp_path).glob("*.index"))) == 1


def test_a_name_based_restore_closes_its_files_again_after_a_late_object(prefix, tmp_path):
    bundles.write(LocalStorage(), prefix, {"w": np.float32(1), "x": np.float32(1)})
    live = Checkpoint(w=Variable(np.float32(0), name="w"))
    live.read(prefix).expect_partial()
    assert open_files(tmp_path) == []
    live.x = Variable(np.float32(0), name="x")
    assert float(live.x) == 1
    assert open_files(tmp_path) == []


def test_a_child_that_two_newer_restores_have_still_leaves_the_oldest_what_it_alone_has(tmp_path):
    both = Checkpoint(a=Variable(1.0), b=Variable(2.0)).write(tmp_path / "both")
    one = Checkpoint(a=Variable(3.0)).write(tmp_path / "one")
    live = Checkpoint()
    statuses = [live.read(path) for path in (both, one, one)]
    live.b = Variable(0.0)
    assert float(live.b) == 2
    assert len(statuses) == 3


def test_an_object_without_values_that_the_program_lacks_keeps_no_file_open(prefix, tmp_path):
    path = Checkpoint(v=Variable(1.0), m=module(n=Module())).write(prefix)
    live = Checkpoint(v=Variable(0.0))
    status = live.read(path)
    assert open_files(tmp_path) == []
    status.assert_consumed()


def test_a_restore_that_a_later_one_supersedes_goes_with_its_status(tmp_path):
    for name in ("a", "b"):
        Checkpoint(x=Variable(1.0)).write(tmp_path / name)
    live = Checkpoint()
    earlier = live.read(tmp_path / "a").expect_partial()
    later = live.read(tmp_path / "b").expect_partial()
    restores = [weakref.ref(each._restoration) for each in (earlier, later)]
    del earlier
    assert [restore() is None for restore in restores] == [True, False]
