"""What a program is told of each checkpoint that is saved."""

import os
import threading
import warnings

import numpy as np
import pytest

from milepost import CheckpointManager, CheckpointOptions, MilepostWarning, Tolerate, UnsupportedError, load_checkpoint
from milepost.manager.committed import CommittedSave
from tests.manager.disks import Disk
from tests.manager.runs import new

EITHER = pytest.mark.parametrize("enable_async", [False, True], ids=["waits", "background"])


@pytest.fixture
def told():
    return []


def manager(directory, hook, enable_async=False, **arguments):
    options = CheckpointOptions(enable_async=enable_async, storage=arguments.pop("storage", None))
    return CheckpointManager(new(), directory, 1, options=options, on_committed=hook, **arguments)


@EITHER
def test_each_checkpoint_with_what_it_is(tmp_path, told, enable_async):
    with manager(tmp_path, told.append, enable_async) as run:
        for step in (10, 20):
            run.save(step, metrics={"loss": np.float32(0.5)}, metadata={"run": "a"})
    path = str(tmp_path / "ckpt-20")
    files = (f"{path}.index", f"{path}.data-00000-of-00001")
    assert told[1] == CommittedSave(path, 20, {"loss": 0.5}, {"run": "a"}, files)
    assert [each.step for each in told] == [10, 20]


@EITHER
def test_it_is_durable_and_listed_and_its_files_are_there(tmp_path, enable_async):
    found = []

    def hook(saved):
        load_checkpoint(saved.path).verify()
        found.append((run.steps, [os.path.exists(file) for file in saved.files]))

    with manager(tmp_path, hook, enable_async) as run:
        for step in (10, 20):
            run.save(step)
    assert found == [([10], [True, True]), ([20], [True, True])]


def test_the_thread_is_the_one_that_writes(tmp_path, told):
    def hook(saved):
        told.append(threading.current_thread().name)

    with manager(tmp_path / "waits", hook) as run:
        run.save(1)
    with manager(tmp_path / "background", hook, enable_async=True) as run:
        run.save(1)
    assert told == [threading.current_thread().name, "milepost-save"]


def test_without_metrics_there_are_none(tmp_path, told):
    manager(tmp_path, told.append).save(1)
    assert (told[0].metrics, told[0].metadata, told[0].nonfinite) == (None, None, ())


@pytest.mark.filterwarnings("ignore:.*not finite")
def test_a_state_that_is_not_finite_is_told(tmp_path, told):
    run = manager(tmp_path, told.append, nonfinite="keep_last_finite")
    run.checkpoint.v.assign(np.full(100, np.nan))
    run.save(1)
    assert told[0].nonfinite == ("v",)


@EITHER
def test_an_error_of_the_function_is_a_warning(tmp_path, caplog, enable_async):
    """Every time. The checkpoint is saved, and the run goes on."""

    def fails(saved):
        raise ConnectionError("the tracker does not answer")

    with manager(tmp_path, fails, enable_async) as run, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in (1, 2):
            run.save(step)
        run.sync()
    texts = [str(each.message) for each in caught if each.category is MilepostWarning]
    assert ["raised ConnectionError: the tracker does not answer" in text for text in texts] == [True, True]
    assert "ckpt-2 is saved" in texts[1]
    assert (run.steps, run.health.state) == ([2], "good")
    assert "ConnectionError" in caplog.text


@pytest.mark.filterwarnings("ignore:.*the run goes on")
def test_a_save_that_fails_is_not_told(tmp_path, told):
    disk = Disk()
    run = manager(tmp_path, told.append, storage=disk, on_failure=Tolerate())
    run.save(1)
    disk.trouble = "full"
    run.save(2)
    disk.recover()
    run.save(3)
    assert [each.step for each in told] == [1, 3]


def test_the_function_may_use_the_manager(tmp_path, told):
    def hook(saved):
        run.sync()
        told.append((run.latest_step, run.health.last_good.step))

    with manager(tmp_path, hook, enable_async=True) as run:
        run.save(7)
    assert told == [(7, 7)]


@pytest.mark.parametrize("wrong", ["print", CommittedSave, lambda: None, lambda path, step: None])
def test_what_is_no_function_of_one_argument_is_refused(tmp_path, wrong):
    with pytest.raises(UnsupportedError, match="on_committed"):
        manager(tmp_path, wrong)
