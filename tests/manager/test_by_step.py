"""What a manager does with checkpoints by their numbers: metrics, metadata, ranking, pins, deletions, and when to save."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import milepost
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Variable
from milepost.errors import (
    ArgumentError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    KeyNotFoundError,
    MilepostWarning,
    StorageError,
    UnsupportedError,
)
from milepost.retention import Best, EverySteps, Newest, Policy
from milepost.storage import LocalStorage
from milepost.testing import FaultyStorage
from tests.bundle.bundles import write
from tests.manager.runs import indexes, new, value

pytestmark = pytest.mark.filterwarnings("error::milepost.errors.MilepostWarning")

LOSSES = {10: 0.5, 20: 0.1, 30: 0.9, 40: 0.8, 50: 0.3}


def saved(directory: Any, newest: int | None = None, **arguments: Any) -> CheckpointManager[Any]:
    manager = CheckpointManager(new(), directory, newest, **arguments)
    for step, loss in LOSSES.items():
        manager.checkpoint.v.assign(np.full(100, float(step)))
        manager.save(step, metrics={"loss": loss}, metadata={"at": [step, None]})
    return manager


class TestMetadata:
    def test_it_comes_back_from_this_and_later_managers_and_readers(self, tmp_path: Path) -> None:
        """As numbers of Python and JSON; a checkpoint without any has None."""
        manager = saved(tmp_path)
        manager.save(60)
        for each in (manager, CheckpointManager(new(), tmp_path, None)):
            assert (each.metrics(20), each.metadata(20)) == ({"loss": 0.1}, {"at": [20, None]})
            assert (each.metrics(60), each.metadata(60)) == (None, None)
        reader = milepost.load_checkpoint(tmp_path / "ckpt-20")
        assert (reader.metrics(), reader.metadata()) == ({"loss": 0.1}, {"at": [20, None]})

    def test_numbers_of_every_kind_are_metrics(self, tmp_path: Path) -> None:
        """Of Python, NumPy and variables, in dicts of dicts; not finite ones too."""
        manager = CheckpointManager(new(), tmp_path, None)
        metrics = {"a": np.float32(0.5), "b": {"c": np.array([2]), "d": Variable(3.0)}, "e": float("nan"), "f": -np.inf}
        manager.save(1, metrics=metrics)
        found = CheckpointManager(new(), tmp_path, None).metrics(1)
        assert found is not None
        assert np.isnan(found.pop("e"))
        assert found == {"a": 0.5, "b": {"c": 2, "d": 3.0}, "f": -np.inf}

    @pytest.mark.parametrize(
        "wrong", [{"loss": "low"}, {"loss": [1, 2]}, {"loss": None}, {1: 2.0}, 0.5, {"a": {"b": np.zeros(2)}}]
    )
    def test_what_is_no_metric_is_refused(self, tmp_path: Path, wrong: Any) -> None:
        """Nothing is saved then, and the number is not used."""
        manager = CheckpointManager(new(), tmp_path, None)
        remedy = (
            "use str"
            if wrong == {1: 2.0}
            else "pass a number as the metric"
            if isinstance(wrong, dict)
            else "pass a dict"
        )
        with pytest.raises(UnsupportedError, match=f"metrics are numbers(.|\n)*remedy: {remedy}"):
            manager.save(metrics=wrong)
        assert indexes(tmp_path) == []
        assert manager.save() == f"{tmp_path}/ckpt-1"

    @pytest.mark.parametrize("wrong", [object(), {"a": {1, 2}}, {"a": b"bytes"}, {(1, 2): 3}])
    def test_what_json_cannot_hold_is_refused(self, tmp_path: Path, wrong: Any) -> None:
        """Nothing is saved then; the same of data that contains itself."""
        manager = CheckpointManager(new(), tmp_path, None)
        circular: list[Any] = []
        circular.append(circular)
        for each in (wrong, circular):
            with pytest.raises(UnsupportedError, match="JSON"):
                manager.save(metadata=each)
        assert indexes(tmp_path) == []

    def test_it_is_no_value_of_the_program(self, tmp_path: Path) -> None:
        """Restores, reports and weights do not see it, and a save without it has the same bytes as ever."""
        manager = saved(tmp_path)
        checkpoint = new()
        status = checkpoint.restore(tmp_path / "ckpt-50").assert_consumed()
        assert status.report().complete
        assert value(checkpoint) == 50
        manager.save(60)
        assert "_MILEPOST_METADATA" not in milepost.load_checkpoint(tmp_path / "ckpt-60").keys()  # noqa: SIM118
        text = milepost.load_variable(tmp_path / "ckpt-50", "_MILEPOST_METADATA")
        assert json.loads(text) == {"metrics": {"loss": 0.3}, "metadata": {"at": [50, None]}}

    @pytest.mark.parametrize(
        "tensor", [np.array(b"{", object), np.array(b"[" * 100_000, object), np.array(b"[]", object), np.zeros(3)]
    )
    def test_hostile_metadata_is_an_error_with_the_file(self, tmp_path: Path, tensor: Any) -> None:
        """And no reason to delete or restore anything else than before."""
        manager = saved(tmp_path, 1, keep=Best(1, by="loss", mode="min"))
        storage = LocalStorage()
        write(storage, str(tmp_path / "ckpt-20"), {"v": np.zeros(2), "_MILEPOST_METADATA": tensor})
        again = CheckpointManager(new(), tmp_path, 1, keep=Best(1, by="loss", mode="min"))
        with pytest.raises(CorruptCheckpointError) as caught:
            again.metadata(20)
        assert caught.value.file == str(tmp_path / "ckpt-20")
        assert again.best_step() == 50
        assert manager.best_step() == 20  # which this manager has saved itself

    def test_metadata_that_was_damaged_is_found(self, tmp_path: Path) -> None:
        """It has a checksum, as all other values have."""
        saved(tmp_path)
        data = tmp_path / "ckpt-20.data-00000-of-00001"
        data.write_bytes(data.read_bytes().replace(b'"loss": 0.1', b'"loss": 0.2'))
        with pytest.raises(CorruptCheckpointError):
            CheckpointManager(new(), tmp_path, None).metrics(20)


class TestSteps:
    def test_steps_are_the_numbers_of_checkpoints(self, tmp_path: Path) -> None:
        """In the same order; the latest is verified, the best follows the policy or the arguments."""
        manager = saved(tmp_path, keep=Newest(9) | Best(2, by="loss", mode="max"))
        assert manager.steps == list(LOSSES) == [int(path.rpartition("-")[2]) for path in manager.checkpoints]
        assert (manager.latest_step, manager.best_step(), manager.best_step("loss", "min")) == (50, 30, 20)
        assert manager.best_step(lambda metrics: -metrics["loss"], "max") == 20
        assert CheckpointManager(new(), tmp_path / "none", 1).latest_step is None

    def test_a_metric_that_no_checkpoint_has_is_a_mistake(self, tmp_path: Path) -> None:
        manager = saved(tmp_path)
        with pytest.raises(KeyNotFoundError, match=r"did you mean 'loss'\?") as caught:
            manager.best_step("los", "min")
        assert (caught.value.key, caught.value.found) == ("los", "'loss'")

    def test_without_metrics_there_is_no_best_step(self, tmp_path: Path) -> None:
        manager = CheckpointManager(new(), tmp_path, None)
        manager.save(1)
        assert manager.best_step("loss", "min") is None

    @pytest.mark.parametrize("mode", ["lowest", "MIN", 3])
    def test_what_is_better_must_be_said_in_known_words(self, tmp_path: Path, mode: Any) -> None:
        manager = saved(tmp_path)
        with pytest.raises(UnsupportedError, match="min"):
            manager.best_step("loss", mode)

    @pytest.mark.parametrize("arguments", [{}, {"by": "loss"}, {"mode": "min"}])
    def test_the_best_by_what_must_be_said(self, tmp_path: Path, arguments: Any) -> None:
        """A default could be the wrong way round."""
        with pytest.raises(UnsupportedError, match="the name of a metric"):
            saved(tmp_path).best_step(**arguments)

    def test_the_latest_step_is_a_good_one(self, tmp_path: Path) -> None:
        """A damaged checkpoint is not restored, and so it is not the latest."""
        saved(tmp_path)
        (tmp_path / "ckpt-50.index").write_bytes(b"damaged")
        manager = CheckpointManager(new(), tmp_path, None)
        with pytest.warns(milepost.SkippedCheckpointWarning):
            assert manager.latest_step == 40

    def test_any_step_can_be_restored(self, tmp_path: Path) -> None:
        """Also by a new manager, which then goes on with the series; also one that is not on the list any more."""
        saved(tmp_path)
        checkpoint = new()
        manager = CheckpointManager(checkpoint, tmp_path, None)
        status = manager.restore(20).assert_consumed()
        assert (value(checkpoint), manager.status) == (20, status)
        manager.save(60)
        assert manager.steps == [*LOSSES, 60]
        (tmp_path / "checkpoint").unlink()
        with pytest.warns(MilepostWarning, match="no state file"):
            unlisted = CheckpointManager(checkpoint, tmp_path, None)
        unlisted.restore(np.int64(10))
        assert value(checkpoint) == 10

    def test_restore_without_a_step_restores_the_newest_good_one(self, tmp_path: Path) -> None:
        """Or raises an error, so that no run begins anew by mistake."""
        checkpoint = new()
        manager = CheckpointManager(checkpoint, tmp_path, None, init_fn=lambda: checkpoint.v.assign(np.ones(100)))
        with pytest.raises(CheckpointNotFoundError, match="no checkpoint to restore"):
            manager.restore()
        assert value(checkpoint) == 0
        saved(tmp_path / "other")
        manager = CheckpointManager(checkpoint, tmp_path / "other", None)
        assert manager.restore().report().complete
        assert value(checkpoint) == 50

    @pytest.mark.parametrize("method", ["restore", "delete", "pin", "metrics", "metadata"])
    def test_a_number_that_is_not_there(self, tmp_path: Path, method: str) -> None:
        """The error lists those that are; what is no number is refused."""
        manager = saved(tmp_path)
        with pytest.raises(CheckpointNotFoundError, match="10, 20, 30, 40, 50") as caught:
            getattr(manager, method)(21)
        assert caught.value.file == f"{tmp_path}/ckpt-21"
        assert caught.value.remedy == "pass one of these numbers"
        for wrong in ("20", -1, 2.5):
            with pytest.raises(UnsupportedError):
                getattr(manager, method)(wrong)
        assert indexes(tmp_path) == [f"ckpt-{step}" for step in LOSSES]

    def test_a_number_whose_files_are_gone(self, tmp_path: Path) -> None:
        """It is not offered, although the state file lists it."""
        manager = saved(tmp_path)
        (tmp_path / "ckpt-30.index").unlink()
        with pytest.raises(CheckpointNotFoundError, match="listed, but its files are missing") as caught:
            manager.restore(30)
        assert caught.value.found == "4 checkpoints: 10, 20, 40, 50"
        assert caught.value.remedy == "copy the files back, or pass one of these numbers"

    def test_a_checkpoint_that_is_no_longer_managed_is_offered_too(self, tmp_path: Path) -> None:
        saved(tmp_path)
        other = CheckpointManager(new(), tmp_path / "x", 1)
        for step in range(12):
            new().write(tmp_path / "x" / f"ckpt-{step}")
        with pytest.raises(CheckpointNotFoundError) as caught:
            other.restore(21)
        assert caught.value.found == "12 checkpoints, the last of them 2, 3, 4, 5, 6, 7, 8, 9, 10, 11"
        assert caught.value.remedy == "pass one of these numbers"

    def test_checkpoints_of_another_name_are_named(self, tmp_path: Path) -> None:
        saved(tmp_path)
        with pytest.raises(CheckpointNotFoundError) as caught:
            CheckpointManager(new(), tmp_path, 1, checkpoint_name="model").restore(10)
        assert "ckpt-10" in str(caught.value.found)
        assert "checkpoint_name" in str(caught.value.remedy)
        with pytest.raises(CheckpointNotFoundError, match=r"found: none(.|\n)*check the directory"):
            CheckpointManager(new(), tmp_path / "empty", 1).restore(10)

    def test_a_missing_data_file_is_not_taken_for_a_missing_checkpoint(self, tmp_path: Path) -> None:
        saved(tmp_path)
        (tmp_path / "ckpt-30.data-00000-of-00001").unlink()
        with pytest.raises(CheckpointNotFoundError, match="a data file of the checkpoint is missing"):
            CheckpointManager(new(), tmp_path, None).metrics(30)

    @pytest.mark.parametrize(("code", "best"), [(errno.EIO, 10), (errno.EACCES, None)])
    def test_only_damage_takes_a_checkpoint_out_of_the_ranking(self, code: int, best: int | None) -> None:
        """What a disk cannot read is damaged. What a program may not read is an error."""
        storage = FaultyStorage()
        options = CheckpointOptions(storage=storage)
        manager = CheckpointManager(new(), "run", None, options=options)
        for step in (10, 20):
            manager.save(step, metrics={"loss": 1 / step})
        manager.reload()
        opened = storage.open

        def refusing(path: str) -> Any:
            if "ckpt-20" in path:
                raise StorageError("cannot open", errno=code, file=path)
            return opened(path)

        storage.open = refusing  # type: ignore[method-assign]
        if best is None:
            with pytest.raises(StorageError, match="ckpt-20"):
                manager.best_step(by="loss", mode="min")
        else:
            assert manager.best_step(by="loss", mode="min") == best


class TestDelete:
    def test_files_and_entry_go(self, tmp_path: Path) -> None:
        """The newest of the others is the latest then; the last one takes the state file with it."""
        manager = saved(tmp_path)
        for step, left in [(50, 40), (20, 40), (40, 30), (30, 10)]:
            manager.delete(step)
            assert manager.latest_step == left == CheckpointManager(new(), tmp_path, None).latest_step
            assert milepost.latest_checkpoint(tmp_path) == f"{tmp_path}/ckpt-{left}"
        manager.delete(10)
        assert os.listdir(tmp_path) == []
        assert (manager.steps, manager.latest_step, manager.restore_or_initialize()) == ([], None, None)
        manager.save(70)
        assert manager.steps == [70]

    def test_the_checkpoints_of_another_manager_stay(self, tmp_path: Path) -> None:
        """With their entries, also if the last of one series goes."""
        other = CheckpointManager(new(), tmp_path, 3, checkpoint_name="other")
        manager = CheckpointManager(new(), tmp_path, 3, checkpoint_name="sub/own")
        other.save(1)
        manager.save(1)
        other.save(2)
        manager.delete(1)
        assert (manager.steps, os.listdir(tmp_path / "sub")) == ([], [])
        manager.save(2)
        assert CheckpointManager(new(), tmp_path, 3, checkpoint_name="other").steps == [1, 2]
        assert CheckpointManager(new(), tmp_path, 3, checkpoint_name="sub/own").steps == [2]

    def test_an_asynchronous_save_is_waited_for(self, tmp_path: Path) -> None:
        """Then its checkpoint can be deleted at once."""
        manager = CheckpointManager(new(), tmp_path, 3, options=CheckpointOptions(enable_async=True))
        manager.save(1)
        manager.save(2)
        manager.delete(2)
        assert not manager.is_saving
        assert (manager.steps, indexes(tmp_path)) == ([1], ["ckpt-1"])


class TestPins:
    def test_a_pinned_checkpoint_is_deleted_by_nobody(self, tmp_path: Path) -> None:
        """Not by this manager, not by one of another process without policies, not by name; until it is unpinned."""
        manager = CheckpointManager(new(), tmp_path, 1)
        manager.save(1)
        manager.pin(1)
        manager.pin(1)
        manager.save(2)
        assert (manager.steps, manager.pinned) == ([1, 2], [1])
        again = CheckpointManager(new(), tmp_path, 1)
        again.restore_or_initialize()
        again.save(3)
        assert (again.steps, indexes(tmp_path)) == ([1, 3], ["ckpt-1", "ckpt-3"])
        for delete in (lambda: again.delete(1), lambda: milepost.tensorflow1.remove_checkpoint(tmp_path / "ckpt-1")):
            with pytest.raises(UnsupportedError, match="pinned"):
                delete()
        assert again.steps == [1, 3]
        again.unpin(1)
        again.unpin(1)
        again.save(4)
        assert (again.steps, again.pinned, sorted(os.listdir(tmp_path))[0]) == ([4], [], "checkpoint")

    def test_a_pin_in_another_process_holds_at_once(self, tmp_path: Path) -> None:
        """The manager that deletes looks for pins when it deletes, not when it was made."""
        manager = CheckpointManager(new(), tmp_path, 1)
        manager.save(1)
        CheckpointManager(new(), tmp_path, 1).pin(1)
        manager.save(2)
        assert (manager.steps, indexes(tmp_path)) == ([1, 2], ["ckpt-1", "ckpt-2"])

    def test_pins_and_deletions_at_the_same_time(self, tmp_path: Path) -> None:
        """A pin that returned holds, whatever another process deletes meanwhile; one that failed leaves no file."""
        code = """
import sys
from milepost import CheckpointManager
from tests.manager.runs import new
manager = CheckpointManager(new(), sys.argv[1], 1)
for step in range(1, 61):
    manager.save(step)
    print(step, flush=True)
"""
        command = [sys.executable, "-c", code, str(tmp_path)]
        pinned = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            for line in process.stdout:
                pinner = pinned_by(tmp_path, int(line))
                if pinner:
                    pinned.append(int(line))
        assert process.returncode == 0
        manager = CheckpointManager(new(), tmp_path, 1)
        assert manager.pinned == pinned
        assert set(manager.steps) == {*pinned, 60}
        assert {*indexes(tmp_path)} == {f"ckpt-{step}" for step in manager.steps}
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


def pinned_by(directory: Path, step: int) -> bool:
    from milepost.series.pins import pin

    try:
        pin(LocalStorage(), f"{directory}/ckpt-{step}")
    except CheckpointNotFoundError:
        return False
    return True


class TestDryRun:
    def test_it_says_what_the_next_save_does(self, tmp_path: Path) -> None:
        """And why, without doing anything."""
        keep = Best(1, by="loss", mode="min") | EverySteps(30)
        manager = saved(tmp_path, 1, keep=keep)
        manager.pin(50)
        before = sorted(os.listdir(tmp_path))
        plan = manager.dry_run(60, {"loss": 0.05})
        assert str(plan).splitlines() == [
            f"ckpt-20: delete: not pinned, not the newest, not kept by {keep!r}",
            "ckpt-30: keep: a multiple of 30",
            "ckpt-50: keep: pinned",
            "ckpt-60: keep: the newest; the best by loss: 0.05; a multiple of 30",
        ]
        assert sorted(os.listdir(tmp_path)) == before
        assert manager.dry_run().deleted == []
        manager.save(60, metrics={"loss": 0.05})
        assert manager.steps == plan.kept

    def test_a_policy_that_fails_deletes_nothing(self, tmp_path: Path) -> None:
        """The save has happened, and a warning names the error."""

        class Broken(Policy):
            def kept(self, checkpoints: Any) -> Any:
                raise ZeroDivisionError("of the policy")

        manager = CheckpointManager(new(), tmp_path, 1, keep=Broken())
        manager.save(1)
        for step in (2, 3):
            with pytest.warns(MilepostWarning, match="of the policy"):
                manager.save(step)
        assert manager.steps == [1, 2, 3]

    @pytest.mark.parametrize("wrong", [3, "best", Best])
    def test_what_is_no_policy_is_refused(self, tmp_path: Path, wrong: Any) -> None:
        """When the manager is made, not in the first save."""
        with pytest.raises(UnsupportedError, match="keep"):
            CheckpointManager(new(), tmp_path, 1, keep=wrong)


class TestWhenToSave:
    @pytest.mark.parametrize(
        ("every", "steps", "due"),
        [
            (None, [0, 1, 2], [0, 1, 2]),
            (10, range(35), [0, 10, 20, 30]),
            (10, [5, 8, 11, 19, 22, 40, 41], [11, 22, 40]),
            (10, [40, 40, 41], [40]),
        ],
    )
    def test_at_multiples_or_the_first_step_after(self, tmp_path: Path, every: Any, steps: Any, due: Any) -> None:
        """A step that is saved is not due again."""
        manager = CheckpointManager(new(), tmp_path, None, every_steps=every)
        for step in steps:
            if manager.should_save(step):
                manager.save(step)
        assert manager.steps == due

    def test_a_run_that_is_restored_counts_from_there(self, tmp_path: Path) -> None:
        """Multiples stay multiples; the step that was restored is not saved again."""
        saved(tmp_path)
        manager = CheckpointManager(new(), tmp_path, None, every_steps=20)
        manager.restore(50)
        assert [step for step in range(50, 90) if manager.should_save(step)] == [*range(60, 90)]

    def test_by_a_counter(self, tmp_path: Path) -> None:
        """Which says the step if nothing else does."""
        step = Variable(np.int64(0))
        manager = CheckpointManager(Checkpoint(step=step), tmp_path, None, step_counter=step, every_steps=3)
        for _ in range(7):
            step.assign_add(1)
            if manager.should_save():
                manager.save()
        assert manager.steps == [1, 2]  # as saves are counted
        with pytest.raises(UnsupportedError, match="step"):
            CheckpointManager(new(), tmp_path / "other", None).should_save()

    def test_by_the_clock(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """When the seconds have passed since the last save, whatever the step is."""
        now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: now)
        manager = CheckpointManager(new(), tmp_path, None, every_seconds=60)
        due = []
        for step in range(10):
            now += 25
            if manager.should_save(step):
                manager.save(step)
                due.append(step)
        assert due == [2, 5, 8]

    @pytest.mark.parametrize("wrong", [{"every_steps": 0}, {"every_seconds": -1}])
    def test_intervals_are_positive(self, tmp_path: Path, wrong: Any) -> None:
        """None is no interval."""
        with pytest.raises(ValueError, match="every_") as caught:
            CheckpointManager(new(), tmp_path, 1, **wrong)
        assert isinstance(caught.value, ArgumentError)
        assert caught.value.remedy


class TestWith:
    def test_the_block_waits_and_raises(self, tmp_path: Path) -> None:
        """An asynchronous save that fails is known when the block ends."""

        class Full(LocalStorage):
            def create(self, path: str) -> Any:
                raise StorageError("cannot write", errno=28, file=path)

        options = CheckpointOptions(enable_async=True, storage=Full())
        with pytest.raises(StorageError), CheckpointManager(new(), tmp_path, 1, options=options) as manager:
            manager.save()
        manager = CheckpointManager(new(), tmp_path, 1, options=options)

        def fail() -> None:
            with manager:
                manager.save()
                raise KeyError

        with pytest.raises(KeyError) as caught:
            fail()
        assert "an asynchronous save failed" in caught.value.__notes__[0]

    def test_threads_that_save_pin_delete_and_ask(self, tmp_path: Path) -> None:
        """One manager may be used by several threads: nothing is lost, and the list is that of the files."""
        options = CheckpointOptions(enable_async=True)
        manager = CheckpointManager(new(), tmp_path, 3, keep=Best(2, by="loss", mode="min"), options=options)
        problems: list[BaseException] = []

        def work(first: int) -> None:
            try:
                for step in range(first, first + 20):
                    manager.save(step, metrics={"loss": step % 7})
                    manager.dry_run()
                    manager.best_step()
                    if step % 5 == 0:
                        try:
                            manager.pin(step)
                            manager.unpin(step)
                            manager.delete(step)
                        except CheckpointNotFoundError:
                            pass  # another thread's save has pushed it off the list
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=work, args=(first,)) for first in (100, 200, 300)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        manager.close()
        assert problems == []
        assert sorted(f"ckpt-{step}" for step in manager.steps) == indexes(tmp_path)
        assert CheckpointManager(new(), tmp_path, 3).steps == manager.steps

    def test_a_program_that_follows_another(self, tmp_path: Path) -> None:
        """`reload` reads what the other has saved since."""
        follower = CheckpointManager(new(), tmp_path, None)
        saved(tmp_path)
        assert follower.steps == []
        follower.reload()
        assert (follower.steps, follower.latest_step, follower.best_step("loss", "min")) == ([*LOSSES], 50, 20)


class TestListedButGone:
    def test_an_interrupted_deletion_is_withdrawn(self, tmp_path: Path) -> None:
        """The checkpoint is whole, so it can be pinned, and it is on the list: in this run and in the next."""

        class Interrupted(LocalStorage):
            def remove(self, path: str) -> None:
                if path.endswith("ckpt-2.index") and not interrupts:
                    interrupts.append(path)
                    raise KeyboardInterrupt
                super().remove(path)

        interrupts: list[str] = []
        manager = CheckpointManager(new(), tmp_path, None, options=CheckpointOptions(storage=Interrupted()))
        for step in (1, 2, 3):
            manager.save(step)
        with pytest.raises(KeyboardInterrupt):
            manager.delete(2)
        manager.pin(2)
        assert manager.steps == [1, 2, 3]
        manager.save(4)
        assert CheckpointManager(new(), tmp_path, None).steps == manager.steps == [1, 2, 3, 4]

    def test_what_is_gone_leaves_the_list_when_it_is_read_and_when_it_is_written(self, tmp_path: Path) -> None:
        """Whoever has removed it."""
        manager = CheckpointManager(new(), tmp_path, None)
        for step in (1, 2, 3):
            manager.save(step)
        for file in tmp_path.glob("ckpt-2.*"):
            file.unlink()
        assert CheckpointManager(new(), tmp_path, None).steps == [1, 3]
        manager.save(4)
        assert manager.steps == [1, 3, 4]
        state = milepost.get_checkpoint_state(tmp_path)
        assert state is not None
        assert [os.path.basename(path) for path in state.all_model_checkpoint_paths] == ["ckpt-1", "ckpt-3", "ckpt-4"]

    def test_what_a_failed_deletion_leaves_is_removed_by_the_next_manager(self, tmp_path: Path) -> None:
        """The manager that failed does not list it, and the next one removes its data."""

        class Failing(LocalStorage):
            def remove(self, path: str) -> None:
                if path.endswith("ckpt-1.data-00000-of-00001"):
                    raise StorageError("refused", errno=errno.EPERM, file=path)
                super().remove(path)

        manager = CheckpointManager(new(), tmp_path, 1, options=CheckpointOptions(storage=Failing()))
        manager.save(1)
        with pytest.warns(MilepostWarning, match="could not be removed"):
            manager.save(2)
        assert manager.steps == [2]
        assert CheckpointManager(new(), tmp_path, 1).steps == [2]
        assert sorted(os.listdir(tmp_path)) == ["checkpoint", "ckpt-2.data-00000-of-00001", "ckpt-2.index"]


class TestPreemption:
    @pytest.fixture(autouse=True)
    def _handler(self) -> Any:
        before = signal.getsignal(signal.SIGTERM)
        yield
        signal.signal(signal.SIGTERM, before)

    def test_the_signal_makes_a_save_due(self, tmp_path: Path) -> None:
        """At the step in which it comes; the loop that ends then has saved, and the handler is put back."""
        before = signal.getsignal(signal.SIGTERM)
        with CheckpointManager(new(), tmp_path, 1, every_steps=100, on_sigterm=True) as manager:
            for step in range(1, 50):
                if step == 7:
                    os.kill(os.getpid(), signal.SIGTERM)
                if manager.should_save(step):
                    manager.save(step)
                os.kill(os.getpid(), 0)
                if manager.reached_preemption(step):
                    break
        assert manager.steps == [7]
        assert signal.getsignal(signal.SIGTERM) is before

    def test_a_signal_between_the_two_questions_waits_for_the_next_step(self, tmp_path: Path) -> None:
        """Otherwise the loop would end without a save."""
        with CheckpointManager(new(), tmp_path, 1, every_steps=100, on_sigterm=True) as manager:
            assert not manager.should_save(1)
            os.kill(os.getpid(), signal.SIGTERM)
            assert not manager.reached_preemption(1)
            assert manager.reached_preemption()
            assert manager.should_save(2)
            assert manager.reached_preemption(2)

    def test_the_handler_of_the_program_is_called_when_the_block_ends(self, tmp_path: Path) -> None:
        """After the save, once."""
        calls: list[Any] = []
        signal.signal(signal.SIGTERM, lambda number, frame: calls.append((number, manager.steps)))
        with CheckpointManager(new(), tmp_path, 1, on_sigterm=True) as manager:
            os.kill(os.getpid(), signal.SIGTERM)
            assert calls == []
            manager.save(3)
        manager.close()
        assert calls == [(signal.SIGTERM, [3])]

    @pytest.mark.parametrize("first", [0, 1])
    def test_two_managers_hear_one_signal(self, tmp_path: Path, first: int) -> None:
        """Whichever is closed first, and then the handler of before is back."""
        before = signal.getsignal(signal.SIGTERM)
        managers = [CheckpointManager(new(), tmp_path / str(n), 1, on_sigterm=True) for n in range(2)]
        os.kill(os.getpid(), signal.SIGTERM)
        assert [each.reached_preemption() for each in managers] == [True, True]
        managers[first].close()
        managers[1 - first].close()
        assert signal.getsignal(signal.SIGTERM) is before

    def test_a_second_signal_ends_the_process(self, tmp_path: Path) -> None:
        """As does the first one when the manager is gone."""
        code = """
import os, signal, sys
import milepost.manager.signals.caught_signal
milepost.manager.signals.caught_signal.SAME_SIGNAL = 0
from milepost import Checkpoint, CheckpointManager, Variable
manager = CheckpointManager(Checkpoint(v=Variable(1)), sys.argv[1], 1, on_sigterm=True)
if sys.argv[2] == "gone":
    del manager
else:
    os.kill(os.getpid(), signal.SIGTERM)
    print("first", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
print("second", flush=True)
"""
        for how, said in (("gone", ""), ("there", "first\n")):
            done = subprocess.run([sys.executable, "-c", code, str(tmp_path), how], stdout=subprocess.PIPE, text=True)
            assert (done.returncode, done.stdout) == (-signal.SIGTERM, said)

    @pytest.mark.parametrize("received", [False, True])
    def test_after_close_in_another_thread_no_signal_is_swallowed(self, tmp_path: Path, received: bool) -> None:
        """The next one goes to the handler of the program, which is called in the main thread if one had come before."""
        main, calls = threading.current_thread(), []
        signal.signal(signal.SIGTERM, lambda number, frame: calls.append(threading.current_thread()))
        manager = CheckpointManager(new(), tmp_path, 1, on_sigterm=True)
        if received:
            os.kill(os.getpid(), signal.SIGTERM)
        closing = threading.Thread(target=manager.close)
        closing.start()
        closing.join()
        assert calls == [main] * received
        os.kill(os.getpid(), signal.SIGTERM)
        assert calls == [main] * (received + 1)

    def test_a_manager_after_one_that_was_closed_in_another_thread(self, tmp_path: Path) -> None:
        """It hears the signal, and puts back the handler that was there before both."""
        before = signal.getsignal(signal.SIGTERM)
        closing = threading.Thread(target=CheckpointManager(new(), tmp_path / "a", 1, on_sigterm=True).close)
        closing.start()
        closing.join()
        with CheckpointManager(new(), tmp_path / "b", 1, on_sigterm=True) as manager:
            os.kill(os.getpid(), signal.SIGTERM)
            assert manager.reached_preemption()
        assert signal.getsignal(signal.SIGTERM) is before

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
    def test_a_forked_child_ends_by_the_signal(self, tmp_path: Path) -> None:
        """As without a manager, so that no pool of worker processes waits for ever. The parent hears its own signal."""
        code = """
import os, signal, sys, time
from milepost import Checkpoint, CheckpointManager, Variable
managers = [CheckpointManager(Checkpoint(v=Variable(1)), sys.argv[1], 1, on_sigterm=True) for _ in range(2)]
child = os.fork()
if not child:
    while True:
        time.sleep(10)
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.kill(os.getpid(), signal.SIGTERM)
print(managers[0].reached_preemption())
"""
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, timeout=60
        )
        assert done.stdout == f"{-signal.SIGTERM}\nTrue\n"

    def test_without_it_nothing_is_caught(self, tmp_path: Path) -> None:
        """It is the program's to ask for."""
        before = signal.getsignal(signal.SIGTERM)
        with CheckpointManager(new(), tmp_path, 1) as manager:
            assert signal.getsignal(signal.SIGTERM) is before
            assert not manager.reached_preemption(5)
