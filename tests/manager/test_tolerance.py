"""Runs that go on through failed and hanging saves, each with one checkpoint to keep, and how they end."""

import contextlib
import errno
import logging
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from milepost import (
    CheckpointExistsError,
    CheckpointManager,
    CheckpointOptions,
    MilepostError,
    MilepostWarning,
    StorageError,
    Tolerate,
    UnsupportedError,
    UntrackableError,
    load_checkpoint,
)
from milepost.manager.tolerance import is_tolerable
from tests.manager.disks import Disk
from tests.manager.runs import indexes, new, value

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:.*the run goes on")
EITHER = pytest.mark.parametrize("enable_async", [False, True], ids=["waits", "background"])


@pytest.fixture
def disk():
    made = Disk()
    yield made
    made.recover()


@pytest.fixture
def manager(tmp_path, disk):
    """Makes the manager of a run on a disk that can be in trouble."""
    made = []

    def make(enable_async=False, policy=None, **arguments):
        options = CheckpointOptions(storage=disk, enable_async=enable_async)
        tolerate = policy or Tolerate(saves=3, hangs_after=0.3)
        made.append(CheckpointManager(new(), tmp_path, 1, options=options, on_failure=tolerate, **arguments))
        return made[-1]

    yield make
    disk.recover()
    for each in made:
        with contextlib.suppress(StorageError):
            each.close()


def save(manager, step):
    """Trains, and saves, and waits for a save in the background without asking for its error."""
    manager.checkpoint.v.assign(np.full(100, float(step)))
    path = manager.save(step)
    until = time.monotonic() + 0.1
    while manager.is_saving and manager.health.state != "hanging" and time.monotonic() < until:
        time.sleep(0.005)
    return path


def save_each(manager, steps):
    for step in steps:
        save(manager, step)


class TestFailedSave:
    @EITHER
    def test_the_run_goes_on_and_the_last_good_checkpoint_stays(self, tmp_path, disk, manager, enable_async):
        """With one checkpoint to keep, nothing of it is lost; the next good save takes its place."""
        run = manager(enable_async)
        save(run, 1)
        disk.trouble = "full"
        for step in (2, 3, 4):
            save(run, step)
            assert run.health.state == "failing"
            assert (indexes(tmp_path), value_of(tmp_path)) == (["ckpt-1"], 1.0)
        disk.recover()
        save(run, 5)
        run.close()
        assert run.health.state == "good"
        assert (indexes(tmp_path), value_of(tmp_path)) == (["ckpt-5"], 5.0)

    def test_save_returns_none(self, disk, manager):
        run = manager()
        disk.trouble = "full"
        assert save(run, 1) is None

    @EITHER
    def test_one_more_than_tolerated_is_an_error_that_lists_all(self, disk, manager, enable_async):
        run = manager(enable_async)
        save(run, 1)
        disk.trouble = "full"
        with pytest.raises(StorageError, match="4 saves in a row have failed") as caught:
            save_each(run, range(2, 9))
        assert caught.value.errno == errno.ENOSPC
        assert [f"step {step} at" in str(caught.value) for step in (1, 2, 3, 4, 5, 6)] == [
            False,
            True,
            True,
            True,
            True,
            False,
        ]
        assert "continues from" in caught.value.remedy
        assert caught.value.remedy.endswith("ckpt-1")

    def test_a_good_save_begins_the_count_anew(self, disk, manager):
        run = manager()
        for step in range(1, 13):
            disk.trouble = "" if step % 4 == 0 else "full"
            save(run, step)
        assert run.health.consecutive == 0

    def test_the_time_since_the_last_good_save_is_limited(self, disk, manager):
        """A save has to fail, too: a long pause between two good saves is none."""
        run = manager(policy=Tolerate(saves=None, seconds=0.2))
        save(run, 1)
        time.sleep(0.3)
        save(run, 2)
        disk.trouble = "full"
        save(run, 3)
        time.sleep(0.3)
        with pytest.raises(StorageError, match="seconds after the last good one"):
            save(run, 4)

    @EITHER
    def test_each_is_told_by_a_warning_and_in_the_log(self, disk, manager, caplog, enable_async):
        run = manager(enable_async)
        save(run, 1)
        disk.trouble = "full"
        with warnings.catch_warnings(record=True) as caught, caplog.at_level(logging.WARNING, "milepost"):
            warnings.simplefilter("always")
            for step in (2, 3):
                save(run, step)
        texts = [str(each.message) for each in caught]
        for step, text, line in zip((2, 3), texts, caplog.messages, strict=True):
            assert f"ckpt-{step} is not saved, and the run goes on (failure {step - 1} of at most 3 in a row" in text
            assert "ckpt-1" in text
            assert "No space left on device" in text
            assert "\n" not in line
        assert {each.category for each in caught} == {MilepostWarning}
        assert {each.levelname for each in caplog.records} == {"WARNING"}

    def test_the_next_save_is_due_as_if_it_had_not_failed(self, disk, manager):
        """And not at every step until one succeeds."""
        run = manager(every_steps=10)
        disk.trouble = "full"
        tried = [step for step in range(1, 36) if run.should_save(step) and save(run, step) is None]
        assert tried == [10, 20, 30]

    def test_an_interval_counts_from_it_too(self, tmp_path, disk):
        step = new().save_counter
        options = CheckpointOptions(storage=disk)
        run = CheckpointManager(
            new(), tmp_path, 1, step_counter=step, checkpoint_interval=10, options=options, on_failure=Tolerate(saves=9)
        )
        disk.trouble = "full"
        for _ in range(25):
            step.assign_add(1)
            run.save()
        assert run.health.consecutive == 3
        disk.recover()
        step.assign_add(10)
        run.save()

    def test_a_step_that_has_failed_can_be_saved_again(self, tmp_path, disk, manager):
        run = manager()
        disk.trouble = "full"
        assert save(run, 7) is None
        disk.recover()
        assert save(run, 7) is not None
        assert indexes(tmp_path) == ["ckpt-7"]

    def test_the_numbers_of_a_counter_have_no_gaps_without_a_background(self, disk, manager):
        run = manager()
        run.save()
        assert [number_of(run.save()) for _ in range(2)] == [2, 3]


class TestErrorsOfTheProgram:
    """They are raised at once: the next save would not do better."""

    def test_an_object_that_cannot_be_saved(self, manager):
        run = manager()
        run.checkpoint.unsaveable = [object()]
        with pytest.raises(UntrackableError):
            save(run, 1)

    def test_the_series_of_another_run(self, tmp_path, manager):
        CheckpointManager(new(), tmp_path, 1).save()
        with pytest.raises(CheckpointExistsError):
            save(manager(), 2)

    @EITHER
    def test_a_write_callback(self, tmp_path, disk, enable_async):
        """Its checkpoint is saved, and the save counts as good."""

        def fail():
            raise ZeroDivisionError

        options = CheckpointOptions(storage=disk, enable_async=enable_async, experimental_write_callbacks=[fail])
        run = CheckpointManager(new(), tmp_path, 1, options=options, on_failure=Tolerate())
        with pytest.raises(ZeroDivisionError), run:
            run.save(1)
        assert (run.health.state, run.health.last_good.step) == ("good", 1)

    def test_which_errors_are_of_the_storage(self):
        assert is_tolerable(StorageError("cannot write"))
        assert not is_tolerable(MilepostError("wrong"))
        assert not is_tolerable(UntrackableError("wrong"))


class TestHangingSave:
    @EITHER
    def test_the_run_goes_on_beside_it(self, tmp_path, disk, manager, enable_async):
        """The first who waits for it waits as long as the policy says; after that, nobody waits."""
        run = manager(enable_async)
        save(run, 1)
        run.sync()
        disk.trouble = "hangs"
        for step in (2, 3):
            save(run, step)
        began = time.monotonic()
        assert save(run, 4) is None
        assert time.monotonic() - began < 0.3
        assert run.health.state == "hanging"
        assert (indexes(tmp_path), value_of(tmp_path)) == (["ckpt-1"], 1.0)

    @EITHER
    def test_it_counts_as_good_when_it_ends_well(self, tmp_path, disk, manager, enable_async):
        run = manager(enable_async)
        save(run, 1)
        run.sync()
        disk.trouble = "hangs"
        for step in (2, 3, 4):
            save(run, step)
        disk.recover()
        run.sync()
        assert (run.health.state, run.health.last_good.step) == ("good", 2)
        assert (indexes(tmp_path), value_of(tmp_path)) == (["ckpt-2"], 2.0)

    def test_one_that_fails_after_all_counts_once(self, disk, manager):
        run = manager()
        save(run, 1)
        disk.trouble = "hangs"
        save(run, 2)
        disk._answers, answers = disk._answers.__class__(), disk._answers
        disk.trouble = "full"
        answers.set()
        until = time.monotonic() + 30
        while run.is_saving and time.monotonic() < until:
            time.sleep(0.01)
        assert run.health.consecutive == 1

    @EITHER
    def test_too_many_skipped_saves_are_an_error(self, disk, manager, enable_async):
        run = manager(enable_async)
        save(run, 1)
        run.sync()
        disk.trouble = "hangs"
        with pytest.raises(StorageError, match="4 saves in a row have failed") as caught:
            save_each(run, range(2, 9))
        assert caught.value.errno == errno.ETIMEDOUT
        assert "ckpt-2 hangs" in str(caught.value)

    def test_sync_does_not_wait_for_it_for_ever(self, disk, manager):
        run = manager(enable_async=True)
        disk.trouble = "hangs"
        save(run, 1)
        with pytest.raises(StorageError, match="ckpt-1 hangs: it has written nothing for"):
            run.sync()

    def test_a_slow_save_that_writes_is_waited_for(self, tmp_path, disk):
        """However long it takes."""

        class Slow:
            def __init__(self, file):
                self._file = file

            def write(self, offset, buffers):
                time.sleep(0.2)
                self._file.write(offset, buffers)

            def __getattr__(self, name):
                return getattr(self._file, name)

            def __enter__(self):
                return self

            def __exit__(self, *_):
                self._file.close()

        class SlowDisk(Disk):
            def create(self, path):
                return Slow(super().create(path))

        checkpoint = new()
        for number in range(8):
            setattr(checkpoint, f"large_{number}", np.ones(1 << 15))
        options = CheckpointOptions(storage=SlowDisk(), data_alignment=1)
        run = CheckpointManager(checkpoint, tmp_path, 1, options=options, on_failure=Tolerate(hangs_after=1.0))
        began = time.monotonic()
        assert run.save(1) is not None
        assert time.monotonic() - began > 1.0


class TestEnd:
    """The end of a run whose last save has failed cannot be missed."""

    def test_close_raises(self, disk, manager):
        run = manager()
        save(run, 1)
        disk.trouble = "full"
        with pytest.raises(StorageError, match="the last save has failed") as caught, run:
            save(run, 2)
        assert "step 2 at" in str(caught.value)
        run.close()  # once

    def test_an_error_of_the_block_comes_first(self, disk, manager):
        run = manager()
        disk.trouble = "full"
        with pytest.raises(ZeroDivisionError) as caught, run:
            raise ZeroDivisionError(save(run, 1))
        assert "the last save has failed" in caught.value.__notes__[0]

    def test_failures_before_a_good_save_do_not_count(self, disk, manager):
        run = manager()
        with run:
            disk.trouble = "full"
            save(run, 1)
            disk.recover()
            save(run, 2)

    @pytest.mark.parametrize("trouble", ["full", "hangs"])
    @EITHER
    def test_a_program_that_does_not_close_ends_with_an_error(self, tmp_path, trouble, enable_async):
        """Also beside a save that hangs, and then in time."""
        code = f"""
            import sys, milepost
            from tests.manager.disks import Disk
            disk = Disk()
            options = milepost.CheckpointOptions(storage=disk, enable_async={enable_async})
            def main():
                run = milepost.CheckpointManager(
                    milepost.Checkpoint(v=1.0), sys.argv[1], 1, options=options, on_failure=milepost.Tolerate(hangs_after=0.3)
                )
                run.save(1)
                run.sync()
                disk.trouble = {trouble!r}
                run.save(2)
                print("trained")
            main()
        """
        command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), str(tmp_path)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
        assert (ran.returncode, ran.stdout) == (120, "trained\n")
        assert ran.stderr.count("milepost: the exit status of this process is 120, because") >= 1
        assert "No space left on device" in ran.stderr or "hangs" in ran.stderr
        assert indexes(tmp_path) == ["ckpt-1"]

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
    def test_a_forked_child_has_not_failed(self, tmp_path):
        code = """
            import os, sys, milepost
            from tests.manager.disks import Disk
            disk = Disk()
            options = milepost.CheckpointOptions(storage=disk)
            run = milepost.CheckpointManager(
                milepost.Checkpoint(v=1.0), sys.argv[1], 1, options=options, on_failure=milepost.Tolerate(saves=3)
            )
            disk.trouble = "full"
            run.save(1)
            if child := os.fork():
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
        command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), str(tmp_path)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
        assert (ran.returncode, ran.stdout) == (120, "0\n")


class TestHealth:
    def test_before_the_first_save(self, manager):
        health = manager().health
        assert (health.state, health.last_good, health.failures, health.consecutive) == ("idle", None, (), 0)

    def test_a_manager_that_only_reads_knows_the_last_good_save(self, tmp_path, manager):
        save(manager(), 7)
        health = CheckpointManager(new(), tmp_path, 1).health
        assert (health.state, health.last_good.step, health.last_good.path) == ("idle", 7, str(tmp_path / "ckpt-7"))
        assert abs(health.last_good.time.timestamp() - time.time()) < 60

    def test_what_has_failed_and_why(self, disk, manager):
        run = manager()
        save(run, 1)
        disk.trouble = "full"
        save(run, 2)
        save(run, 3)
        health = run.health
        assert (health.state, health.last_good.step, health.consecutive) == ("failing", 1, 2)
        assert [each.step for each in health.failures] == [2, 3]
        assert health.failures[0].error.errno == errno.ENOSPC
        assert health.failures[0].error.__traceback__ is None
        lines = str(health).splitlines()
        assert lines[0].startswith("failing: last good save ckpt-1 at ")
        assert lines[0].endswith(", 2 failed saves since")
        assert lines[2].startswith("  step 3 at ")

    def test_errors_that_are_raised_are_known_too(self, tmp_path, disk):
        """Without a policy. So a program that catches errors itself can ask."""
        run = CheckpointManager(new(), tmp_path, 1, options=CheckpointOptions(storage=disk))
        save(run, 1)
        disk.trouble = "full"
        with pytest.raises(StorageError):
            save(run, 2)
        assert (run.health.state, run.health.failures[0].step) == ("failing", 2)

    def test_an_error_in_the_background_is_known_before_it_is_raised(self, tmp_path, disk):
        run = CheckpointManager(new(), tmp_path, 1, options=CheckpointOptions(storage=disk, enable_async=True))
        disk.trouble = "full"
        save(run, 1)
        assert run.health.state == "failing"
        with pytest.raises(StorageError):
            run.sync()

    def test_a_save_in_progress(self, disk, manager):
        run = manager(enable_async=True, policy=Tolerate(hangs_after=60))
        disk.trouble = "hangs"
        run.save(1)
        assert run.health.state == "saving"
        disk.recover()
        run.sync()


class TestRealFaults:
    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
    def test_a_file_that_the_system_lets_not_grow(self, tmp_path):
        """As on a full disk, and with the system's own error."""
        checkpoint = new()
        checkpoint.large = np.ones(1 << 20)
        run = CheckpointManager(checkpoint, tmp_path, 1, on_failure=Tolerate())
        run.save(1)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
        try:
            assert run.save(2) is None
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert run.health.failures[0].error.errno == errno.EFBIG
        assert run.save(3) is not None
        assert indexes(tmp_path) == ["ckpt-3"]

    def test_a_directory_that_becomes_a_file(self, tmp_path):
        """And is there again later."""
        directory = tmp_path / "run"
        run = CheckpointManager(new(), directory, 1, on_failure=Tolerate())
        run.save(1)
        directory.rename(tmp_path / "moved")
        directory.write_bytes(b"")
        assert run.save(2) is None
        directory.unlink()
        (tmp_path / "moved").rename(directory)
        assert run.save(3) is not None
        assert indexes(directory) == ["ckpt-3"]


@pytest.mark.parametrize(
    "arguments",
    [{"saves": 0}, {"saves": 1.5}, {"saves": True}, {"seconds": 0}, {"seconds": "1"}, {"hangs_after": None}],
)
def test_a_policy_checks_its_arguments(arguments):
    with pytest.raises(UnsupportedError, match=next(iter(arguments))):
        Tolerate(**arguments)


def test_what_is_no_policy_is_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="on_failure"):
        CheckpointManager(new(), tmp_path, 1, on_failure="ignore")


def value_of(directory):
    """The value in the newest checkpoint of a directory, all of which is read."""
    reader = load_checkpoint(str(directory))
    reader.verify()
    checkpoint = new()
    checkpoint.read(reader.prefix).expect_partial()
    return value(checkpoint)


def number_of(path):
    return int(path.rpartition("-")[2])
