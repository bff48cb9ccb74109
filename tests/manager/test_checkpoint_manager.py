"""`CheckpointManager`: rules, restarts, damage, and what it does differently from TensorFlow's."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Variable, get_checkpoint_state
from milepost.errors import (
    CheckpointExistsError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    MilepostWarning,
    MismatchError,
    SkippedCheckpointWarning,
    StateFileError,
    StorageError,
)
from milepost.retention import EveryHours
from milepost.series.state_file import CheckpointState, record_state
from milepost.storage import LocalStorage, MemoryStorage
from milepost.tensorflow1 import update_checkpoint_state
from tests.manager.runs import indexes, new, run, value

pytestmark = pytest.mark.filterwarnings("error::milepost.errors.MilepostWarning")

OVERWRITE = CheckpointOptions(overwrite=True)


class Clock:
    """Stands in for the `time` module's clock, in this process's frameworks too."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    stopped = Clock()
    monkeypatch.setattr(time, "time", stopped)
    return stopped


def damage(path: str, ending: str = "data-00000-of-00001") -> None:
    file = Path(f"{path}.{ending}")
    content = bytearray(file.read_bytes())
    content[5] ^= 1
    file.write_bytes(content)


class TestArguments:
    @pytest.mark.parametrize("number", [0, -3])
    def test_at_least_one_must_be_kept(self, tmp_path: Path, number: int) -> None:
        """None keeps all; no number keeps none."""
        with pytest.raises(ValueError, match="max_to_keep"):
            CheckpointManager(new(), tmp_path, number)

    def test_an_interval_needs_a_counter(self, tmp_path: Path) -> None:
        """There is nothing to count otherwise."""
        with pytest.raises(ValueError, match="step_counter"):
            CheckpointManager(new(), tmp_path, 1, checkpoint_interval=5)

    @pytest.mark.parametrize("directory", ["{}/run", "run", "./run/", "."])
    @pytest.mark.parametrize("kind", [str, Path])
    def test_the_directory_may_be_of_any_kind(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str, kind: type
    ) -> None:
        """Absolute or relative, a string or path, existing or not; paths begin with it."""
        monkeypatch.chdir(tmp_path)
        passed = kind(directory.format(tmp_path))
        manager = CheckpointManager(new(), passed, 3)
        path = manager.save()
        assert path == os.path.join(passed, "ckpt-1") == manager.latest_checkpoint
        assert manager.directory == os.fspath(passed)
        again = CheckpointManager(new(), passed, 3)
        assert again.checkpoints == [path] == [again.latest_checkpoint] == [milepost.latest_checkpoint(passed)]

    def test_properties(self, tmp_path: Path) -> None:
        """What was passed can be asked for."""
        checkpoint = new()
        manager = CheckpointManager(checkpoint, tmp_path, 1, step_counter=checkpoint.v, checkpoint_interval=5)
        assert manager.checkpoint is checkpoint
        assert manager.checkpoint_interval == 5
        assert manager.latest_checkpoint is None
        assert manager.checkpoints == []

    def test_another_name(self, tmp_path: Path) -> None:
        """Also one with a directory in it."""
        manager = run(tmp_path, 3, checkpoint_name="sub/model[1]", keep=2)
        assert manager.latest_checkpoint == f"{tmp_path}/sub/model[1]-3"
        assert indexes(tmp_path / "sub") == ["model[1]-2", "model[1]-3"]
        again = CheckpointManager(new(), tmp_path, 2, checkpoint_name="sub/model[1]")
        assert again.checkpoints == manager.checkpoints


class TestNumbers:
    def test_a_number_may_be_given(self, tmp_path: Path) -> None:
        """As an integer or a variable; the save counter counts all the same, and the variable does not."""
        manager = run(tmp_path, 1)
        step = Variable(np.int64(70))
        assert manager.save(checkpoint_number=7) == f"{tmp_path}/ckpt-7"
        assert manager.save(checkpoint_number=step) == f"{tmp_path}/ckpt-70"
        assert manager.save() == f"{tmp_path}/ckpt-4"
        assert (int(manager.checkpoint.save_counter), int(step)) == (4, 70)
        assert [path.rpartition("-")[2] for path in manager.checkpoints] == ["1", "7", "70", "4"]

    def test_saving_the_same_number_again_makes_it_the_newest(self, tmp_path: Path) -> None:
        """The list holds it once, at the end."""
        manager = run(tmp_path, 2, keep=2)
        manager.save(checkpoint_number=1)
        assert [path[-1] for path in manager.checkpoints] == ["2", "1"]
        manager.save(checkpoint_number=9)
        assert indexes(tmp_path) == ["ckpt-1", "ckpt-9"]

    def test_a_process_that_did_not_restore_does_not_overwrite(self, tmp_path: Path) -> None:
        """It is told what to do; nothing has changed, and with the option it goes on."""
        run(tmp_path, 2)
        fresh = CheckpointManager(new(), tmp_path, None)
        with pytest.raises(CheckpointExistsError, match="restore"):
            fresh.save()
        assert int(fresh.checkpoint.save_counter) == 0
        assert [path[-1] for path in fresh.checkpoints] == ["1", "2"]
        fresh.save(options=CheckpointOptions(overwrite=True))
        assert [path[-1] for path in fresh.checkpoints] == ["2", "1"]

    def test_a_failed_save_uses_no_number(self, tmp_path: Path) -> None:
        """And leaves everything as it was."""

        class Full(LocalStorage):
            full = False

            def create(self, path: str) -> Any:
                if self.full and "data" in path:
                    raise StorageError("refused", errno=errno.ENOSPC, file=path)
                return super().create(path)

        storage = Full()
        manager = run(tmp_path, 2, options=CheckpointOptions(storage=storage))
        before = sorted(os.listdir(tmp_path)), (tmp_path / "checkpoint").read_text()
        storage.full = True
        with pytest.raises(StorageError):
            manager.save()
        assert (sorted(os.listdir(tmp_path)), (tmp_path / "checkpoint").read_text()) == before
        storage.full = False
        assert manager.save() == f"{tmp_path}/ckpt-3"


class TestInterval:
    def test_saves_when_enough_steps_have_passed(self, tmp_path: Path) -> None:
        """The first time always, never twice at one step, and in between only when told to."""
        step = Variable(np.int64(0))
        manager = CheckpointManager(new(), tmp_path, None, step_counter=step, checkpoint_interval=5)
        done = []
        for number in range(12):
            step.assign(number)
            done.append(manager.save(check_interval=number != 7) is not None)
        assert [number for number in range(12) if done[number]] == [0, 5, 7]
        assert manager.save(check_interval=False) is not None
        assert manager.save(check_interval=False) is None

    def test_the_last_step_may_be_given(self, tmp_path: Path) -> None:
        """Then the first save waits for the interval too."""
        step = Variable(np.int64(3))
        manager = CheckpointManager(
            new(), tmp_path, None, step_counter=step, checkpoint_interval=5, last_checkpoint_step=0
        )
        assert manager.save() is None
        step.assign(5)
        assert manager.save() is not None

    def test_restoring_counts_as_saving(self, tmp_path: Path) -> None:
        """The step that was restored is the last step saved."""
        first = Checkpoint(step=Variable(np.int64(7)))
        CheckpointManager(first, tmp_path, None).save()
        again: Any = Checkpoint(step=Variable(np.int64(0)))
        manager = CheckpointManager(again, tmp_path, None, step_counter=again.step, checkpoint_interval=5)
        assert manager.restore_or_initialize()
        again.step.assign(11)
        assert manager.save() is None
        again.step.assign(12)
        assert manager.save() is not None

    def test_a_failed_save_does_not_count(self, tmp_path: Path) -> None:
        """It can be tried again at the same step, which TensorFlow refuses."""
        step = Variable(np.int64(0))
        run(tmp_path, 1)
        manager = CheckpointManager(new(), tmp_path, None, step_counter=step, checkpoint_interval=5)
        with pytest.raises(CheckpointExistsError):
            manager.save()
        assert manager.save(options=CheckpointOptions(overwrite=True)) is not None


class TestRestoreOrInitialize:
    def test_without_checkpoints_init_fn_is_called(self, tmp_path: Path) -> None:
        """And the answer is None."""
        called = []
        manager = CheckpointManager(new(), tmp_path, 1, init_fn=lambda: called.append(True))
        assert manager.restore_or_initialize() is None
        assert called == [True]
        assert CheckpointManager(new(), tmp_path, 1).restore_or_initialize() is None

    def test_the_latest_is_restored(self, tmp_path: Path) -> None:
        """Numbering goes on from there."""
        run(tmp_path, 3)
        manager = CheckpointManager(new(), tmp_path, 2, init_fn=pytest.fail)
        assert manager.restore_or_initialize() == f"{tmp_path}/ckpt-3"
        assert value(manager.checkpoint) == 3
        assert manager.save() == f"{tmp_path}/ckpt-4"
        assert indexes(tmp_path) == ["ckpt-3", "ckpt-4"]

    @pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
    @pytest.mark.parametrize("harm", [damage, lambda path, ending: os.remove(f"{path}.{ending}")])
    @pytest.mark.parametrize("verify", ["checksums", "files", "none"])
    def test_a_bad_one_is_passed_over(self, tmp_path: Path, harm: Any, ending: str, verify: Any) -> None:
        """Whether that shows before or while it is restored; training goes on and may overwrite it."""
        harm(run(tmp_path, 3).latest_checkpoint, ending)
        manager = CheckpointManager(new(), tmp_path, None, verify=verify)
        with pytest.warns(SkippedCheckpointWarning, match="ckpt-3") as caught:
            assert manager.restore_or_initialize() == f"{tmp_path}/ckpt-2"
        assert len(caught) == 1
        assert value(manager.checkpoint) == 2
        assert manager.latest_checkpoint == f"{tmp_path}/ckpt-2"
        assert manager.save() == f"{tmp_path}/ckpt-3"
        again = CheckpointManager(new(), tmp_path, None)
        assert again.restore_or_initialize() == f"{tmp_path}/ckpt-3"
        assert value(again.checkpoint) == 2

    def test_damage_in_what_is_not_restored_yet_counts(self, tmp_path: Path) -> None:
        """Values that wait for their object are verified at once, while there is still an older checkpoint."""
        damage(run(tmp_path, 2).checkpoints[-1])
        empty = Checkpoint()
        manager = CheckpointManager(empty, tmp_path, None)
        with pytest.warns(SkippedCheckpointWarning, match="ckpt-2"):
            assert manager.restore_or_initialize() == f"{tmp_path}/ckpt-1"
        empty.v = Variable(np.zeros(100))
        assert value(empty) == 1

    def test_if_all_are_bad_that_is_an_error(self, tmp_path: Path) -> None:
        """Training does not start anew without anyone being told."""
        for path in run(tmp_path, 2).checkpoints:
            damage(path)
        manager = CheckpointManager(new(), tmp_path, None, init_fn=pytest.fail)
        with pytest.warns(SkippedCheckpointWarning), pytest.raises(CorruptCheckpointError, match="ckpt-1"):
            manager.restore_or_initialize()

    def test_if_all_are_missing_that_is_an_error(self, tmp_path: Path) -> None:
        """With another name, and the same remedy."""
        run(tmp_path, 2)
        for index in tmp_path.glob("*.index"):
            index.unlink()
        manager = CheckpointManager(new(), tmp_path, None, init_fn=pytest.fail)
        with pytest.warns(SkippedCheckpointWarning), pytest.raises(CheckpointNotFoundError, match="state file"):
            manager.restore_or_initialize()

    def test_one_that_another_process_prunes_meanwhile_is_not_warned_of(self, tmp_path: Path) -> None:
        """It was found good and is gone when it is opened, since the trainer has saved the next."""
        trainer: CheckpointManager[Any] = CheckpointManager(Checkpoint(v=Variable(1.0)), tmp_path, 1)
        trainer.save()

        class Meanwhile(LocalStorage):
            def open(self, path: str) -> Any:
                if path.endswith("ckpt-1.index"):
                    trainer.checkpoint.v.assign(2.0)
                    trainer.save()
                return super().open(path)

        evaluator: Any = Checkpoint(v=Variable(0.0))
        manager = CheckpointManager(
            evaluator, tmp_path, 1, options=CheckpointOptions(storage=Meanwhile()), verify="none"
        )
        assert manager.restore_or_initialize() == f"{tmp_path}/ckpt-2"
        assert float(evaluator.v) == 2.0

    def test_a_mismatch_is_not_damage(self, tmp_path: Path) -> None:
        """An older checkpoint would not fit either."""
        run(tmp_path, 2)
        manager = CheckpointManager(Checkpoint(v=Variable(np.zeros(3))), tmp_path, None)
        with pytest.raises(MismatchError):
            manager.restore_or_initialize()

    def test_a_state_file_that_is_not_understood_is_an_error(self, tmp_path: Path) -> None:
        """At once, before any training."""
        run(tmp_path, 1)
        (tmp_path / "checkpoint").write_text("junk")
        with pytest.raises(StateFileError):
            CheckpointManager(new(), tmp_path, 1)


class TestLatest:
    def test_is_verified_when_it_is_asked_for(self, tmp_path: Path) -> None:
        """Making a manager reads no data."""
        damage(run(tmp_path, 2).checkpoints[-1])
        manager = CheckpointManager(new(), tmp_path, None)
        with pytest.warns(SkippedCheckpointWarning, match="ckpt-2"):
            assert manager.latest_checkpoint == f"{tmp_path}/ckpt-1"
        assert manager.latest_checkpoint == f"{tmp_path}/ckpt-1"
        manager = CheckpointManager(new(), tmp_path, None, verify="none")
        assert manager.latest_checkpoint == f"{tmp_path}/ckpt-2"

    def test_a_save_makes_it_known(self, tmp_path: Path) -> None:
        """What was just saved needs no verification, nor does anything older then."""
        damage(run(tmp_path, 2).checkpoints[-1])
        manager = CheckpointManager(new(), tmp_path, None)
        path = manager.save(checkpoint_number=9, options=OVERWRITE)
        assert manager.latest_checkpoint == path

    def test_a_save_that_ends_while_older_ones_are_verified_wins(self, tmp_path: Path) -> None:
        """A background save may become durable at any time."""

        class Interrupting(LocalStorage):
            then: Callable[[], object] | None = None

            def open(self, path: str) -> Any:
                then, self.then = self.then, None
                if then is not None:
                    then()
                return super().open(path)

        run(tmp_path, 1)
        storage = Interrupting()
        manager = CheckpointManager(new(), tmp_path, None, options=CheckpointOptions(storage=storage))
        storage.then = lambda: manager.save(
            checkpoint_number=9, options=CheckpointOptions(storage=storage, overwrite=True)
        )
        assert manager.latest_checkpoint == f"{tmp_path}/ckpt-9"
        assert manager.latest_checkpoint == f"{tmp_path}/ckpt-9"

    def test_an_asynchronous_save_is_the_latest_when_it_is_durable(self, tmp_path: Path) -> None:
        """Which `sync` waits for; retention has been applied by then."""
        options = CheckpointOptions(enable_async=True)
        manager = CheckpointManager(new(), tmp_path, 2, options=options)
        paths = [manager.save() for _ in range(5)]
        manager.sync()
        assert manager.latest_checkpoint == paths[-1]
        assert indexes(tmp_path) == ["ckpt-4", "ckpt-5"]
        assert CheckpointManager(new(), tmp_path, 2).restore_or_initialize() == paths[-1]


class TestRetention:
    def test_the_newest_are_kept(self, tmp_path: Path) -> None:
        """Files and list agree, and nothing else is in the directory."""
        manager = run(tmp_path, 5, keep=2)
        assert manager.checkpoints == [f"{tmp_path}/ckpt-4", f"{tmp_path}/ckpt-5"]
        files = [f"ckpt-{number}.{ending}" for number in (4, 5) for ending in ("data-00000-of-00001", "index")]
        assert sorted(os.listdir(tmp_path)) == ["checkpoint", *files]

    def test_without_a_limit_all_are_kept(self, tmp_path: Path) -> None:
        """And all are listed."""
        assert len(run(tmp_path, 7).checkpoints) == 7 == len(indexes(tmp_path))

    def test_one_an_hour_is_preserved(self, tmp_path: Path, clock: Clock) -> None:
        """Saving every twenty minutes with two kept, every third survives, also over restarts."""
        for number in range(1, 13):
            clock.now += 20 * 60
            manager = CheckpointManager(new(), tmp_path, 2, keep_checkpoint_every_n_hours=1)
            manager.save(checkpoint_number=number, options=OVERWRITE)
        assert indexes(tmp_path) == ["ckpt-10", "ckpt-11", "ckpt-12", "ckpt-4", "ckpt-7"]
        assert manager.checkpoints == [f"{tmp_path}/ckpt-11", f"{tmp_path}/ckpt-12"]

    def test_without_timestamps_all_are_managed(self, tmp_path: Path) -> None:
        """What `Checkpoint.save` or TensorFlow 1 listed is deleted in its turn, and times are those of the files."""
        run(tmp_path, 3)
        update_checkpoint_state(tmp_path, "ckpt-3", ["ckpt-1", "ckpt-2", "ckpt-3", "missing"][:3])
        os.utime(tmp_path / "ckpt-1.index", (1000, 1000))
        manager = CheckpointManager(new(), tmp_path, 2)
        assert len(manager.checkpoints) == 3
        manager.save(checkpoint_number=4, options=OVERWRITE)
        assert indexes(tmp_path) == ["ckpt-3", "ckpt-4"]

    def test_a_clock_that_went_back_deletes_nothing(self, tmp_path: Path, clock: Clock) -> None:
        """What is on the disk stays, and a warning says so."""
        run(tmp_path, 3)
        clock.now -= 24 * 3600
        with pytest.warns(MilepostWarning, match="clock"):
            manager = CheckpointManager(new(), tmp_path, 1)
        assert manager.checkpoints == []
        assert manager.restore_or_initialize() == f"{tmp_path}/ckpt-3"
        clock.now += 1
        manager.save()
        assert len(indexes(tmp_path)) == 4

    def test_a_clock_that_went_back_deletes_nothing_that_every_hours_keeps(self, tmp_path: Path, clock: Clock) -> None:
        """Neither in the run that finds the clock set back, nor in the one after it."""

        def resumed() -> CheckpointManager:
            manager = CheckpointManager(new(), tmp_path, 1, keep=EveryHours(3))
            manager.restore_or_initialize()
            return manager

        manager = resumed()
        for _ in range(4):
            manager.save()
            clock.now += 3 * 3600
        clock.now -= 11 * 3600  # an hour after the first
        for _ in range(2):
            resumed().save()
            clock.now += 600
        assert indexes(tmp_path) == [f"ckpt-{number}" for number in range(1, 7)]

    def test_the_warning_of_a_clock_that_went_back_has_the_words_of_tensorflow(
        self, tmp_path: Path, clock: Clock
    ) -> None:
        """Programs may look for them in a log."""
        run(tmp_path, 1)
        clock.now -= 3600
        with pytest.warns(MilepostWarning, match="behind the last preserved checkpoint timestamp"):
            CheckpointManager(new(), tmp_path, 1)

    @pytest.mark.parametrize("alias", ["{}", "{}/../run", "link"])
    def test_a_checkpoint_under_another_name_is_the_same(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alias: str
    ) -> None:
        """Deleting the old entry does not delete the files of the new one."""
        monkeypatch.chdir(tmp_path)
        os.symlink("run", "link")
        run("run", 2)
        alias = alias.format(tmp_path / "run")
        (tmp_path / "run/checkpoint").write_text(
            f'model_checkpoint_path: "{os.path.abspath(alias)}/ckpt-2"\n'
            f'all_model_checkpoint_paths: ["{os.path.abspath(alias)}/ckpt-1", "{os.path.abspath(alias)}/ckpt-2"]'
        )
        manager = CheckpointManager(new(), "run", 2, options=CheckpointOptions(overwrite=True))
        assert manager.checkpoints == ["run/ckpt-1", "run/ckpt-2"]
        manager.save()
        manager.save(checkpoint_number=3)
        assert indexes(tmp_path / "run") == ["ckpt-1", "ckpt-3"]

    def test_what_cannot_be_deleted_is_tried_again(self, tmp_path: Path) -> None:
        """The save is good; a warning tells; the list keeps what is still there."""

        class Stubborn(LocalStorage):
            stubborn = True

            def remove(self, path: str) -> None:
                if self.stubborn and path.endswith(".index"):
                    raise StorageError("refused", errno=errno.EACCES, file=path)
                super().remove(path)

        storage = Stubborn()
        manager = CheckpointManager(new(), tmp_path, 1, options=CheckpointOptions(storage=storage))
        manager.save()
        with pytest.warns(MilepostWarning, match="could not be removed"):
            manager.save()
        assert len(manager.checkpoints) == 2
        assert len(CheckpointManager(new(), tmp_path, 1).checkpoints) == 2
        storage.stubborn = False
        manager.save()
        assert indexes(tmp_path) == ["ckpt-3"]

    def test_other_files_stay(self, tmp_path: Path) -> None:
        """Graphs of TensorFlow 1, notes, checkpoints that are not on the list."""
        Checkpoint(v=Variable(1.0)).write(tmp_path / "best-0")
        for name in ("ckpt-1.meta", "ckpt-1.index.txt", "notes"):
            (tmp_path / name).write_text("mine")
        run(tmp_path, 3, keep=1)
        assert sorted(path.name for path in tmp_path.iterdir() if path.read_bytes() == b"mine") == [
            "ckpt-1.index.txt",
            "ckpt-1.meta",
            "notes",
        ]
        assert indexes(tmp_path) == ["best-0", "ckpt-3"]

    def test_the_state_is_durable_before_anything_is_deleted(self, tmp_path: Path) -> None:
        """And no longer lists what is gone afterwards; an index goes before its data."""
        calls: list[str] = []

        class Recording(LocalStorage):
            def rename(self, source: str, target: str) -> None:
                super().rename(source, target)
                calls.append(f"rename {os.path.basename(target)}")

            def remove(self, path: str) -> None:
                super().remove(path)
                calls.append(f"remove {os.path.basename(path)}")

            def sync_directory(self, path: str) -> None:
                super().sync_directory(path)
                calls.append("sync")

        storage = Recording()
        manager = CheckpointManager(new(), tmp_path, 1, options=CheckpointOptions(storage=storage))
        manager.save()
        calls.clear()
        manager.save()
        assert ".milepost-" in calls.pop()  # what announced the save, now that it is on the list
        assert calls.pop().endswith("-removal-0000000000000000.tmp")  # what told processes that pin of the removal
        assert calls == [
            "sync",
            "rename ckpt-2.data-00000-of-00001",
            "sync",
            "rename ckpt-2.index",
            "sync",
            "rename checkpoint",
            "sync",
            "remove ckpt-1.index",
            "sync",
            "remove ckpt-1.data-00000-of-00001",
            "sync",
            "rename checkpoint",
            "sync",
        ]


class TestLeftovers:
    def test_are_swept_at_the_start(self, tmp_path: Path) -> None:
        """Not those of others."""
        for name in ("ckpt-9.data-00000-of-00001", "ckpt-9.index.milepost-0123456789abcdef-of-00001.tmp", "other.tmp"):
            (tmp_path / name).write_text("x")
        CheckpointManager(new(), tmp_path, 1)
        assert os.listdir(tmp_path) == ["other.tmp"]

    def test_a_directory_that_may_not_be_changed_can_be_restored_from(self, tmp_path: Path) -> None:
        """What cannot be swept is warned of."""

        class ReadOnly(LocalStorage):
            def remove(self, path: str) -> None:
                raise StorageError("refused", errno=errno.EROFS, file=path)

        run(tmp_path, 1)
        (tmp_path / "checkpoint.milepost-0123456789abcdef.tmp").write_text("x")
        with pytest.warns(MilepostWarning, match="leftovers"):
            manager = CheckpointManager(new(), tmp_path, 1, options=CheckpointOptions(storage=ReadOnly()))
        assert manager.restore_or_initialize() == f"{tmp_path}/ckpt-1"


class TestStorage:
    def test_everything_is_in_the_storage_of_the_options(self) -> None:
        """Saves, restores, state and retention."""
        options = CheckpointOptions(storage=MemoryStorage())
        manager = run("run", 3, keep=2, options=options)
        again = CheckpointManager(new(), "run", 2, options=options)
        assert again.restore_or_initialize() == "run/ckpt-3" == manager.latest_checkpoint
        assert value(again.checkpoint) == 3
        assert options.storage is not None
        assert len(options.storage.list("run")) == 5

    def test_options_of_one_save_are_in_the_same_storage(self) -> None:
        """Unless they name another."""
        storage = MemoryStorage()
        manager = CheckpointManager(new(), "run", 2, options=CheckpointOptions(storage=storage))
        called: list[str] = []
        manager.save(options=CheckpointOptions(experimental_write_callbacks=[called.append]))
        assert called == ["run/ckpt-1"]
        assert storage.is_file("run/ckpt-1.index")

    def test_a_directory_can_be_moved(self, tmp_path: Path) -> None:
        """Nothing in it names the place where it was."""
        run(tmp_path / "a", 2)
        shutil.move(tmp_path / "a", tmp_path / "b")
        assert CheckpointManager(new(), tmp_path / "b", 2).restore_or_initialize() == f"{tmp_path}/b/ckpt-2"
        state = get_checkpoint_state(tmp_path / "b")
        assert state is not None
        record_state(tmp_path / "b", CheckpointState(state.model_checkpoint_path))
