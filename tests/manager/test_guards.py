"""Nothing that another run saved is deleted, overwritten or mistaken for this run's own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import milepost
from milepost import CheckpointManager, CheckpointOptions, latest_checkpoint
from milepost.errors import (
    CheckpointExistsError,
    CheckpointNotFoundError,
    MilepostWarning,
    SkippedCheckpointWarning,
    StateFileError,
    UnsupportedError,
)
from milepost.storage import MemoryStorage
from milepost.tensorflow1 import update_checkpoint_state
from tests.manager.runs import indexes, new, run, value

pytestmark = pytest.mark.filterwarnings("error::milepost.errors.MilepostWarning")


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


class TestRunsThatDidNotRestore:
    def test_the_first_save_of_a_manager_is_refused(self, tmp_path: Path) -> None:
        """Also where low numbers are free because they were pruned. Nothing changes, and nothing counts."""
        run(tmp_path, 10, keep=3)
        before = files(tmp_path)
        manager = CheckpointManager(new(), tmp_path, 3)
        for _ in range(2):
            with pytest.raises(
                CheckpointExistsError, match=r"found: ckpt-8, ckpt-9 and ckpt-10(.|\n)*restore"
            ) as caught:
                manager.save()
            assert "overwrite=True" in str(caught.value)
        assert files(tmp_path) == before
        assert int(manager.checkpoint.save_counter) == 0

    def test_of_many_checkpoints_the_last_are_named(self, tmp_path: Path) -> None:
        run(tmp_path, 5, keep=5)
        with pytest.raises(CheckpointExistsError) as caught:
            new().save(tmp_path / "ckpt")
        assert caught.value.found == "5 checkpoints, the last of which are ckpt-3, ckpt-4 and ckpt-5"

    def test_the_first_plain_save_is_refused(self, tmp_path: Path) -> None:
        """Checkpoints without a manager are guarded by the same rule."""
        run(tmp_path, 5, keep=1)
        with pytest.raises(CheckpointExistsError, match="ckpt-5"):
            new().save(tmp_path / "ckpt")
        assert indexes(tmp_path) == ["ckpt-5"]

    def test_a_number_that_is_given_is_refused_too(self, tmp_path: Path) -> None:
        """It would push the others out of the list."""
        run(tmp_path, 2)
        with pytest.raises(CheckpointExistsError):
            CheckpointManager(new(), tmp_path, 1).save(checkpoint_number=100)
        assert indexes(tmp_path) == ["ckpt-1", "ckpt-2"]

    @pytest.mark.parametrize("number", [10**18, 2**63, 10**30])
    def test_a_number_of_any_length_is_one_of_the_series(self, tmp_path: Path, number: int) -> None:
        """Such as a time in nanoseconds."""
        run(tmp_path, 2)
        with pytest.raises(CheckpointExistsError):
            CheckpointManager(new(), tmp_path, 1).save(checkpoint_number=number)
        manager = CheckpointManager(new(), tmp_path, 1)
        manager.restore_or_initialize()
        manager.save(checkpoint_number=number)
        again = CheckpointManager(new(), tmp_path, 1)
        assert again.checkpoints == [f"{tmp_path}/ckpt-{number}"]
        assert again.restore_or_initialize() == f"{tmp_path}/ckpt-{number}"

    @pytest.mark.parametrize("number", [-1, 3.7, "7", float("nan"), [4]])
    def test_what_is_no_number_of_a_checkpoint_is_refused(self, tmp_path: Path, number: Any) -> None:
        """Nothing is saved, and nothing counts."""
        manager = CheckpointManager(new(), tmp_path, 1)
        with pytest.raises(UnsupportedError, match="number"):
            manager.save(checkpoint_number=number)
        assert int(manager.checkpoint.save_counter) == 0
        assert list(tmp_path.iterdir()) == []

    def test_a_plain_save_beside_a_list_that_is_not_understood_is_refused(self, tmp_path: Path) -> None:
        """It would replace the list, and with it what is known of the older run."""
        run(tmp_path, 3)
        text = (tmp_path / "checkpoint").read_bytes()[:-20]
        (tmp_path / "checkpoint").write_bytes(text)
        with pytest.raises(StateFileError):
            new().save(tmp_path / "best")
        with pytest.raises(StateFileError):
            milepost.save_weights(new(), tmp_path / "weights")
        assert (tmp_path / "checkpoint").read_bytes() == text
        assert indexes(tmp_path) == ["ckpt-1", "ckpt-2", "ckpt-3"]

    def test_a_warm_start_from_elsewhere_turns_no_guard_off(self, tmp_path: Path) -> None:
        """What was restored counts for its directory."""
        pretrained = new(7.0).save(tmp_path / "pretrained/ckpt")
        run(tmp_path / "run", 3)
        checkpoint = new()
        checkpoint.restore(pretrained)
        with pytest.raises(CheckpointExistsError):
            checkpoint.save(tmp_path / "run/ckpt")
        with pytest.raises(CheckpointExistsError):
            CheckpointManager(checkpoint, tmp_path / "run", 3).save()
        assert checkpoint.save(tmp_path / "fresh/ckpt").endswith("ckpt-2")

    def test_what_was_read_does_not_count_as_restored(self, tmp_path: Path) -> None:
        """`read` takes no account of numbers."""
        path = run(tmp_path, 2).checkpoints[-1]
        checkpoint = new()
        checkpoint.read(path)
        with pytest.raises(CheckpointExistsError):
            checkpoint.save(tmp_path / "ckpt")

    @pytest.mark.parametrize("spelling", ["run", "./run", "{}/run", "link", "run/../run"])
    def test_a_directory_is_known_by_any_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
    ) -> None:
        """Relative, absolute, or through a link."""
        monkeypatch.chdir(tmp_path)
        os.symlink("run", "link")
        run("run", 2)
        checkpoint = new()
        checkpoint.restore(f"{tmp_path}/run/ckpt-2")
        spelled = spelling.format(tmp_path)
        assert checkpoint.save(f"{spelled}/ckpt") == f"{spelled}/ckpt-3"

    def test_the_old_series_may_be_given_up(self, tmp_path: Path) -> None:
        """Its checkpoints are pruned in their turn then, oldest first."""
        run(tmp_path, 5, keep=3)
        manager = CheckpointManager(new(), tmp_path, 3, options=CheckpointOptions(overwrite=True))
        manager.save()
        assert indexes(tmp_path) == ["ckpt-1", "ckpt-4", "ckpt-5"]
        manager.save()
        manager.save()
        assert indexes(tmp_path) == ["ckpt-1", "ckpt-2", "ckpt-3"]

    def test_an_older_checkpoint_that_was_restored_counts(self, tmp_path: Path) -> None:
        """Going back on purpose is not forgetting to restore."""
        run(tmp_path, 3)
        checkpoint = new()
        manager = CheckpointManager(checkpoint, tmp_path, 5)
        checkpoint.restore(f"{tmp_path}/ckpt-1")
        assert manager.save() == f"{tmp_path}/ckpt-2"

    def test_another_name_is_another_series(self, tmp_path: Path) -> None:
        """A new series may be begun beside an old one."""
        run(tmp_path, 2)
        assert new().save(tmp_path / "other") == f"{tmp_path}/other-1"

    @pytest.mark.parametrize("name", ["", "below/"])
    def test_a_series_may_have_numbers_alone(self, tmp_path: Path, name: str) -> None:
        """As the prefix of a directory with a slash at its end gives them; the next run manages and guards them."""
        run(tmp_path, 3, keep=2, checkpoint_name=name)
        with pytest.raises(CheckpointExistsError):
            CheckpointManager(new(), tmp_path, 2, checkpoint_name=name).save()
        manager = CheckpointManager(new(), tmp_path, 2, checkpoint_name=name)
        manager.restore_or_initialize()
        manager.save()
        assert manager.checkpoints == [f"{tmp_path}/{name}-3", f"{tmp_path}/{name}-4"]
        assert indexes(tmp_path / name) == ["-3", "-4"]

    def test_in_any_storage(self) -> None:
        """Also in memory."""
        options = CheckpointOptions(storage=MemoryStorage())
        run("run", 2, options=options)
        with pytest.raises(CheckpointExistsError):
            CheckpointManager(new(), "run", 2, options=options).save()
        assert CheckpointManager(new(), "run", 2, options=CheckpointOptions(storage=MemoryStorage())).save()

    def test_trees_of_jax_are_guarded_alike(self, tmp_path: Path) -> None:
        """`TreeManager` has the same rules."""
        jax = pytest.importorskip("milepost.jax")
        import jax.numpy as jnp

        tree = {"w": jnp.zeros(3)}
        old = jax.TreeManager(tmp_path, 2)
        for _ in range(4):
            old.save(tree)
        with pytest.raises(CheckpointExistsError):
            jax.TreeManager(tmp_path, 2).save(tree)
        again = jax.TreeManager(tmp_path, 2)
        again.restore_latest(tree)
        assert again.save(tree) == f"{tmp_path}/ckpt-5"


class TestListsThatLeadElsewhere:
    @pytest.mark.parametrize("path", ["{}/original/ckpt-2", "../original/ckpt-2", "link/ckpt-2"])
    def test_what_lies_outside_is_restored_and_never_removed(self, tmp_path: Path, path: str) -> None:
        """It is dropped from the list with a warning."""
        run(tmp_path / "original", 2)
        before = files(tmp_path / "original")
        here = tmp_path / "here"
        here.mkdir()
        os.symlink("../original", here / "link")
        update_checkpoint_state(here, path.format(tmp_path))
        with pytest.warns(MilepostWarning, match="ever removed"):
            manager = CheckpointManager(new(), here, 1)
        assert manager.checkpoints == []
        restored = manager.restore_or_initialize()
        assert restored is not None
        assert value(manager.checkpoint) == 2
        for _ in range(3):
            manager.save()
        assert files(tmp_path / "original") == before
        assert indexes(here) == ["ckpt-5"]
        assert latest_checkpoint(here) == f"{here}/ckpt-5"

    def test_a_link_to_files_elsewhere_is_not_managed(self, tmp_path: Path) -> None:
        """A link that a user made is not removed either."""
        run(tmp_path / "original", 1)
        here = tmp_path / "here"
        here.mkdir()
        for name in os.listdir(tmp_path / "original"):
            os.symlink(f"../original/{name}", here / name)
        with pytest.warns(MilepostWarning, match="ever removed"):
            manager = CheckpointManager(new(), here, 1)
        assert manager.restore_or_initialize() == f"{here}/ckpt-1"
        manager.save()
        manager.save()
        assert indexes(here) == ["ckpt-1", "ckpt-3"]
        assert value(new()) == 0

    @pytest.mark.parametrize("absolute", [True, False])
    def test_a_copied_directory_is_read_where_it_is(self, tmp_path: Path, absolute: bool) -> None:
        """And its manager never touches the original, whatever path the list has."""
        original, copy = tmp_path / "original", tmp_path / "copy"
        manager = run(original, 3)
        if absolute:
            update_checkpoint_state(original, manager.checkpoints[-1], manager.checkpoints)
        before = files(original)
        shutil.copytree(original, copy)
        assert latest_checkpoint(copy) == f"{copy}/ckpt-3"
        resumed = CheckpointManager(new(), copy, 1)
        assert resumed.restore_or_initialize() == f"{copy}/ckpt-3"
        resumed.save()
        assert indexes(copy) == ["ckpt-4"]
        assert files(original) == before

    @pytest.mark.parametrize("form", ["{}/original/ckpt-{}", "../original/ckpt-{}", "link/ckpt-{}"])
    def test_a_copy_without_the_newest_restores_its_own(self, tmp_path: Path, form: str) -> None:
        """The list names all of them where the original is, which is not the copy's."""
        original, copy = tmp_path / "original", tmp_path / "copy"
        run(original, 3)
        copy.mkdir()
        os.symlink("../original", copy / "link")
        for path in original.glob("ckpt-[12].*"):
            shutil.copy2(path, copy)
        paths = [form.format(tmp_path, number) if "{}/" in form else form.format(number) for number in (1, 2, 3)]
        update_checkpoint_state(copy, paths[-1], paths)
        assert latest_checkpoint(copy) == f"{copy}/ckpt-2"
        with pytest.warns(MilepostWarning, match="ever removed"):
            manager = CheckpointManager(new(), copy, 2)
        assert manager.restore_or_initialize() == f"{copy}/ckpt-2"
        assert manager.save() == f"{copy}/ckpt-3"

    def test_another_prefix_is_read_and_never_removed(self, tmp_path: Path) -> None:
        """A checkpoint saved by hand is not swept by a manager of another name."""
        checkpoint = new(3.0)
        kept = checkpoint.save(tmp_path / "keep_me")
        with pytest.warns(MilepostWarning, match="keep_me-1"):
            manager = CheckpointManager(new(), tmp_path, 2)
        assert manager.restore_or_initialize() == kept
        assert value(manager.checkpoint) == 3
        for _ in range(4):
            manager.save()
        assert indexes(tmp_path) == ["ckpt-4", "ckpt-5", "keep_me-1"]


class TestTwoManagers:
    def test_each_keeps_prunes_and_restores_its_own(self, tmp_path: Path) -> None:
        """In one directory, under two names, also after a restart."""

        def managers(keep: int) -> list[CheckpointManager[Any]]:
            return [CheckpointManager(new(), tmp_path, keep, checkpoint_name=name) for name in ("latest", "best")]

        latest, best = managers(2)
        for number in range(1, 7):
            for manager in (latest, best) if number % 3 == 0 else (latest,):
                manager.checkpoint.v.assign(np.full(100, float(number if manager is latest else -number)))
                manager.save()
        assert indexes(tmp_path) == ["best-1", "best-2", "latest-5", "latest-6"]
        again, best_again = managers(1)
        assert best_again.restore_or_initialize() == f"{tmp_path}/best-2"
        assert again.restore_or_initialize() == f"{tmp_path}/latest-6"
        assert (value(again.checkpoint), value(best_again.checkpoint)) == (6, -6)
        best_again.save()
        assert indexes(tmp_path) == ["best-3", "latest-5", "latest-6"]
        again.save()
        assert indexes(tmp_path) == ["best-3", "latest-7"]

    def test_the_second_does_not_restore_what_the_first_saved(self, tmp_path: Path) -> None:
        """It has nothing of its own yet."""
        first = run(tmp_path, 2, checkpoint_name="a")
        second = CheckpointManager(new(), tmp_path, 2, checkpoint_name="b")
        assert second.restore_or_initialize() is None
        assert second.latest_checkpoint is None
        assert first.latest_checkpoint == f"{tmp_path}/a-2"

    def test_plain_saves_leave_what_managers_have_listed(self, tmp_path: Path) -> None:
        """A checkpoint saved by hand in between does not make a manager forget its own."""
        manager = run(tmp_path, 3)
        manager.checkpoint.save(tmp_path / "milestone")
        assert latest_checkpoint(tmp_path) == f"{tmp_path}/milestone-4"
        again = CheckpointManager(new(), tmp_path, 2)
        assert again.checkpoints == manager.checkpoints
        assert again.restore_or_initialize() == f"{tmp_path}/ckpt-3"


class TestUnlistedCheckpoints:
    def test_a_copied_checkpoint_is_pointed_out_and_taken_up_when_told(self, tmp_path: Path) -> None:
        """Somebody copied ckpt-3.* into a new directory, without the state file."""
        run(tmp_path / "old", 3)
        here = tmp_path / "here"
        here.mkdir()
        for path in (tmp_path / "old").glob("ckpt-[23].*"):
            shutil.copy2(path, here)
        with pytest.warns(MilepostWarning, match=r"ckpt-3(.|\n)*adopt_checkpoints"):
            manager = CheckpointManager(new(), here, 2)
        assert manager.latest_checkpoint is None
        with pytest.raises(CheckpointExistsError):
            manager.save()
        assert manager.adopt_checkpoints() == [f"{here}/ckpt-2", f"{here}/ckpt-3"]
        assert manager.restore_or_initialize() == f"{here}/ckpt-3"
        assert manager.save() == f"{here}/ckpt-4"
        assert indexes(here) == ["ckpt-3", "ckpt-4"]
        assert CheckpointManager(new(), here, 2).checkpoints == [f"{here}/ckpt-3", f"{here}/ckpt-4"]

    def test_what_is_adopted_is_older_than_what_was_listed(self, tmp_path: Path) -> None:
        """The latest stays the latest."""
        manager = run(tmp_path, 2)
        path = new().write(tmp_path / "ckpt-9")
        assert manager.adopt_checkpoints() == [path]
        assert manager.checkpoints == [path, f"{tmp_path}/ckpt-1", f"{tmp_path}/ckpt-2"]
        assert manager.latest_checkpoint == f"{tmp_path}/ckpt-2"

    def test_a_list_that_names_lost_files_is_said_as_it_is(self, tmp_path: Path) -> None:
        """The file is there; what it names is not."""
        run(tmp_path, 3)
        for path in tmp_path.glob("ckpt-*"):
            path.unlink()
        with (
            pytest.warns(SkippedCheckpointWarning),
            pytest.raises(CheckpointNotFoundError, match="names checkpoints that do not exist"),
        ):
            milepost.load_checkpoint(tmp_path)
        (tmp_path / "checkpoint").unlink()
        with pytest.raises(CheckpointNotFoundError, match="has no state file"):
            milepost.load_checkpoint(tmp_path)

    def test_after_plain_saves_older_ones_are_fallen_back_to(self, tmp_path: Path) -> None:
        """The state file names the last one only, as TensorFlow's does."""
        checkpoint = new()
        paths = [checkpoint.save(tmp_path / "ckpt") for _ in range(12)]
        Path(paths[-1] + ".index").write_bytes(b"damaged")
        with pytest.warns(SkippedCheckpointWarning, match="ckpt-12"):
            assert latest_checkpoint(tmp_path) == paths[-2]
        with pytest.warns(SkippedCheckpointWarning, match="ckpt-12"):
            assert CheckpointManager(new(), tmp_path, 3).restore_or_initialize() == paths[-2]


def test_the_status_of_the_managers_restore(tmp_path: Path) -> None:
    """It can be asked; before a restore there is none."""
    run(tmp_path, 1)
    manager = CheckpointManager(new(), tmp_path, 3)
    assert manager.status is None
    manager.restore_or_initialize()
    assert manager.status is not None
    manager.status.assert_consumed()


class TestMovedDirectories:
    """While a run saves to a directory, someone moves it, and leaves a link to it in its place."""

    def test_the_run_goes_on(self, tmp_path: Path) -> None:
        manager = CheckpointManager(new(), tmp_path / "run", 2)
        manager.save()
        moved(tmp_path / "run", tmp_path / "elsewhere")
        for _ in range(3):
            manager.save()
        assert indexes(tmp_path / "elsewhere") == ["ckpt-3", "ckpt-4"]

    def test_a_run_that_has_restored_goes_on(self, tmp_path: Path) -> None:
        run(tmp_path / "run", 2)
        manager = CheckpointManager(new(), tmp_path / "run", 2)
        manager.restore_or_initialize()
        moved(tmp_path / "run", tmp_path / "elsewhere")
        manager.save()
        assert indexes(tmp_path / "elsewhere") == ["ckpt-2", "ckpt-3"]

    def test_a_plain_series_goes_on(self, tmp_path: Path) -> None:
        checkpoint = new()
        checkpoint.save(tmp_path / "run" / "ckpt")
        moved(tmp_path / "run", tmp_path / "elsewhere")
        checkpoint.save(tmp_path / "run" / "ckpt")
        assert indexes(tmp_path / "elsewhere") == ["ckpt-1", "ckpt-2"]

    def test_the_series_of_another_name_stays_anothers(self, tmp_path: Path) -> None:
        checkpoint = new()
        checkpoint.save(tmp_path / "run" / "ckpt")
        new().save(tmp_path / "run" / "other")
        moved(tmp_path / "run", tmp_path / "elsewhere")
        with pytest.raises(CheckpointExistsError):
            checkpoint.save(tmp_path / "run" / "other")

    def test_a_new_directory_with_the_inode_is_another_one(self, tmp_path: Path) -> None:
        """The checkpoints in the directory were removed, and another run has saved others of the same names to it."""
        checkpoint = new()
        checkpoint.save(tmp_path / "run" / "ckpt")
        for path in (tmp_path / "run").iterdir():
            path.unlink()
        new().save(tmp_path / "run" / "ckpt")
        moved(tmp_path / "run", tmp_path / "elsewhere")
        with pytest.raises(CheckpointExistsError):
            checkpoint.save(tmp_path / "run" / "ckpt")

    def test_a_copy_by_hard_links_is_another_one(self, tmp_path: Path) -> None:
        checkpoint = new()
        checkpoint.save(tmp_path / "run" / "ckpt")
        shutil.copytree(tmp_path / "run", tmp_path / "copy", copy_function=os.link)
        with pytest.raises(CheckpointExistsError):
            checkpoint.save(tmp_path / "copy" / "ckpt")


def moved(directory: Path, target: Path) -> None:
    """Moves a directory, and leaves a link to it."""
    directory.rename(target)
    directory.symlink_to(target)
