"""Once a checkpoint is visible it is there, whatever fails after that, and whoever is killed."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milepost import (
    AfterCommitError,
    Checkpoint,
    CheckpointManager,
    CheckpointOptions,
    MilepostWarning,
    StorageError,
    Variable,
    latest_checkpoint,
    load_variable,
)
from milepost.series.announcement import announced, digest_of
from milepost.series.notes import Temporary, new_token
from milepost.storage import LocalStorage
from milepost.testing import FaultyStorage
from tests import programs

Start = Callable[[Checkpoint, str, Any], Callable[[], object]]


def plain(checkpoint: Checkpoint, directory: str, storage: Any) -> Callable[[], object]:
    options = CheckpointOptions(storage=storage)
    return lambda: checkpoint.save(f"{directory}/ckpt", options)


def managed(checkpoint: Checkpoint, directory: str, storage: Any) -> Callable[[], object]:
    return CheckpointManager(checkpoint, directory, 2, options=CheckpointOptions(storage=storage)).save


def started(start: Start, storage: Any) -> tuple[Checkpoint, Callable[[], object]]:
    """A run that goes on from what there is."""
    checkpoint = Checkpoint(v=Variable(np.zeros(10)))
    latest = latest_checkpoint("run", options=CheckpointOptions(storage=storage))
    if latest is not None:
        checkpoint.restore(latest, CheckpointOptions(storage=storage))
    return checkpoint, start(checkpoint, "run", storage)


def advance(checkpoint: Any, save: Callable[[], object]) -> None:
    checkpoint.v.assign(np.asarray(checkpoint.v) + 1)
    save()


def value(checkpoint: Any) -> int:
    return int(np.asarray(checkpoint.v)[0])


class TestFailures:
    @pytest.mark.parametrize("start", [plain, managed])
    @pytest.mark.parametrize("effect", ["nothing", "all"])
    def test_after_each_that_fails_the_process_goes_on(self, start: Start, effect: Any) -> None:
        """A number is used if and only if its checkpoint is there; later saves work, and all are found again."""
        reference = FaultyStorage()
        checkpoint, save = started(start, reference)
        advance(checkpoint, save)
        before = len(reference.operations)
        advance(checkpoint, save)
        after_commit = 0
        for number in range(before, len(reference.operations)):
            storage = FaultyStorage()
            checkpoint, save = started(start, storage)
            advance(checkpoint, save)
            storage.fail(number, errno.EIO, effect=effect)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MilepostWarning)
                try:
                    advance(checkpoint, save)
                except AfterCommitError:
                    after_commit += 1
                    assert storage.is_file("run/ckpt-2.index")
                    assert int(checkpoint.save_counter) == 2
                except StorageError:
                    assert not storage.is_file("run/ckpt-2.index"), reference.operations[number]
                    assert int(checkpoint.save_counter) == 1
                advance(checkpoint, save)
            assert value(started(start, storage)[0]) == 3, reference.operations[number]
        assert after_commit

    def test_a_checkpoint_whose_listing_is_interrupted_is_listed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C comes after the commit point, and before the manager knows of the checkpoint. The program may go on."""
        storage = FaultyStorage()
        checkpoint, save = started(managed, storage)
        advance(checkpoint, save)

        def interrupted(*_: Any) -> None:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr("milepost.manager.managed_save.publish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            advance(checkpoint, save)
        assert latest_checkpoint("run", options=CheckpointOptions(storage=storage)) == "run/ckpt-2"
        advance(checkpoint, save)
        advance(checkpoint, save)
        assert [name for name in storage.list("run") if name.endswith(".index")] == ["ckpt-3.index", "ckpt-4.index"]

    @pytest.mark.parametrize("start", [plain, managed])
    def test_a_disk_that_dies_says_no_more_than_it_knows(self, start: Start) -> None:
        """Nothing can be read or written from one operation on. The error says that the checkpoint is saved only if it is."""
        reference = FaultyStorage()
        checkpoint, save = started(start, reference)
        advance(checkpoint, save)
        before = len(reference.operations)
        advance(checkpoint, save)
        for number in range(before, len(reference.operations)):
            storage = FaultyStorage()
            checkpoint, save = started(start, storage)
            advance(checkpoint, save)
            storage.fail(number, errno.EIO, times=None)
            said = None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MilepostWarning)
                try:
                    advance(checkpoint, save)
                except StorageError as error:
                    said = error
                is_there = "ckpt-2.index" in {os.path.basename(path) for path in storage.contents()}
                storage.settle()
                advance(checkpoint, save)
            commits = reference.operations[number].target == "run/ckpt-2.index"
            assert said is None or isinstance(said, AfterCommitError) == (is_there or commits), reference.operations[
                number
            ]
            assert ("may be saved or not" in str(said)) == commits
            assert value(started(start, storage)[0]) == 3, reference.operations[number]

    def test_a_checkpoint_whose_names_may_be_lost_prunes_nothing(self) -> None:
        """A power cut could leave the older ones alone; the next save makes up for it."""
        reference = FaultyStorage()
        checkpoint, save = started(managed, reference)
        for _ in range(3):
            advance(checkpoint, save)
        renames = [n for n, each in enumerate(reference.operations) if each.target == "run/ckpt-3.index"]
        storage = FaultyStorage()
        checkpoint, save = started(managed, storage)
        advance(checkpoint, save)
        advance(checkpoint, save)
        storage.fail(renames[0] + 1, errno.EIO)
        with pytest.raises(AfterCommitError, match=r"power cut(.|\n)*ckpt-3"):
            advance(checkpoint, save)
        assert sum(name.endswith(".index") for name in storage.list("run")) == 3
        advance(checkpoint, save)
        assert [name for name in storage.list("run") if name.endswith(".index")] == ["ckpt-3.index", "ckpt-4.index"]

    @pytest.mark.parametrize("start", [plain, managed])
    def test_a_state_file_that_cannot_be_written(self, start: Start, tmp_path: Path) -> None:
        """The error says that the checkpoint is saved, and where it is not listed; the next save lists it."""

        class Full(LocalStorage):
            full = False

            def create(self, path: str) -> Any:
                if self.full and os.path.basename(path).startswith("checkpoint."):
                    raise StorageError("cannot create", errno=errno.ENOSPC, file=path, remedy="free space")
                return super().create(path)

        storage = Full()
        checkpoint = Checkpoint(v=Variable(np.zeros(10)))
        save = start(checkpoint, str(tmp_path), storage)
        advance(checkpoint, save)
        storage.full = True
        with pytest.raises(AfterCommitError, match=r"is saved(.|\n)*state file(.|\n)*free space") as caught:
            advance(checkpoint, save)
        assert caught.value.errno == errno.ENOSPC
        storage.full = False
        assert latest_checkpoint(tmp_path) == f"{tmp_path}/ckpt-2"
        advance(checkpoint, save)
        assert latest_checkpoint(tmp_path) == f"{tmp_path}/ckpt-3"
        for number in (1, 2, 3):  # as if all had been saved within one tick of the file system's clock
            with suppress(FileNotFoundError):
                os.utime(tmp_path / f"ckpt-{number}.index", (1e9, 1e9))
        assert latest_checkpoint(tmp_path) == f"{tmp_path}/ckpt-3"

    @pytest.mark.parametrize("enable_async", [False, True])
    def test_a_write_callback_that_raises(self, tmp_path: Path, enable_async: bool) -> None:
        """The others are called all the same; its own error arrives, and says that the checkpoint is saved."""
        called: list[str] = []

        def refuse(path: str) -> None:
            raise ValueError("no")

        options = CheckpointOptions(experimental_write_callbacks=[refuse, called.append], enable_async=enable_async)
        checkpoint = Checkpoint(v=Variable(np.zeros(10)))
        manager = CheckpointManager(checkpoint, tmp_path, 3, options=options)

        def save_and_wait() -> None:
            manager.save()
            manager.sync()

        with pytest.raises(ValueError, match="no") as caught:
            save_and_wait()
        assert any("ckpt-1 is saved" in note for note in caught.value.__notes__)
        assert called == manager.checkpoints == [f"{tmp_path}/ckpt-1"]
        assert int(checkpoint.save_counter) == 1

    def test_write_callbacks_are_called_after_a_write_whose_last_sync_failed(self, tmp_path: Path) -> None:
        class Failing(LocalStorage):
            def sync_directory(self, path: str) -> None:
                if os.path.exists(tmp_path / "c.index"):
                    raise StorageError("make durable", errno=errno.EIO, file=path)
                super().sync_directory(path)

        called: list[str] = []
        options = CheckpointOptions(experimental_write_callbacks=[called.append], storage=Failing())
        with pytest.raises(AfterCommitError, match="is saved"):
            Checkpoint(v=Variable(1.0)).write(tmp_path / "c", options)
        assert called == [f"{tmp_path}/c"]
        assert load_variable(tmp_path / "c", "v/.ATTRIBUTES/VARIABLE_VALUE") == 1.0

    @pytest.mark.parametrize("start", [plain, managed])
    def test_a_save_sweeps_what_killed_ones_left_beside_the_state_file(self, tmp_path: Path, start: Start) -> None:
        checkpoint, save = started(start, None)
        save = start(checkpoint, str(tmp_path), None)
        advance(checkpoint, save)
        living = Temporary(f"{tmp_path}/checkpoint", new_token())
        Path(Temporary(f"{tmp_path}/checkpoint", new_token()).path).touch()
        with LocalStorage().create(living.path):
            if start is managed:
                save = start(checkpoint, str(tmp_path), None)
            advance(checkpoint, save)
            assert [name for name in os.listdir(tmp_path) if name.endswith(".tmp")] == [os.path.basename(living.path)]

    def test_an_interrupt_after_the_commit_uses_the_number(self, tmp_path: Path) -> None:
        """Ctrl-C while the state file is written."""

        class Interrupted(LocalStorage):
            now = False

            def create(self, path: str) -> Any:
                if self.now and os.path.basename(path).startswith("checkpoint."):
                    raise KeyboardInterrupt
                return super().create(path)

        storage = Interrupted()
        checkpoint = Checkpoint(v=Variable(np.zeros(10)))
        manager = CheckpointManager(checkpoint, tmp_path, 3, options=CheckpointOptions(storage=storage))
        storage.now = True
        with pytest.raises(KeyboardInterrupt):
            manager.save()
        storage.now = False
        assert manager.save() == f"{tmp_path}/ckpt-2"
        assert manager.checkpoints == [f"{tmp_path}/ckpt-1", f"{tmp_path}/ckpt-2"]

    def test_an_interrupt_at_the_commit_itself_lists_the_checkpoint(self, tmp_path: Path) -> None:
        """Ctrl-C while the names are made durable; what was saved before it stays in its order."""

        class Interrupted(LocalStorage):
            def sync_directory(self, path: str) -> None:
                super().sync_directory(path)
                if self.now and os.path.exists(f"{path}/ckpt-2.index"):
                    self.now = False
                    raise KeyboardInterrupt

            now = True

        checkpoint = Checkpoint(v=Variable(np.zeros(10)))
        manager = CheckpointManager(checkpoint, tmp_path, 3, options=CheckpointOptions(storage=Interrupted()))
        manager.save()
        with pytest.raises(KeyboardInterrupt):
            manager.save()
        assert manager.latest_checkpoint == latest_checkpoint(tmp_path) == f"{tmp_path}/ckpt-2"
        manager.save()
        names = [f"{tmp_path}/ckpt-{number}" for number in (1, 2, 3)]
        assert manager.checkpoints == CheckpointManager(checkpoint, tmp_path, 3).checkpoints == names


class TestKilled:
    @pytest.mark.parametrize("start", [plain, managed])
    @pytest.mark.parametrize("saves", [1, 3, 5])
    def test_what_was_committed_is_taken_up(self, start: Start, saves: int) -> None:
        """Killed before any operation of a save: if its index is visible, the next run goes on from it."""
        reference = FaultyStorage()
        checkpoint, save = started(start, reference)
        for _ in range(saves - 1):
            advance(checkpoint, save)
        before = len(reference.operations)
        advance(checkpoint, save)
        committed = 0
        for number in range(before, len(reference.operations) + 1):
            storage = FaultyStorage()
            checkpoint, save = started(start, storage)
            for _ in range(saves - 1):
                advance(checkpoint, save)
            storage.fail(number, errno.EIO, times=None)  # nothing that a dead process would do is done
            with contextlib.suppress(StorageError), warnings.catch_warnings():
                warnings.simplefilter("ignore", MilepostWarning)
                advance(checkpoint, save)
            storage._faults.clear()
            storage._writers.clear()
            visible = storage.is_file(f"run/ckpt-{saves}.index")
            committed += visible
            checkpoint, save = started(start, storage)
            assert value(checkpoint) == saves - 1 + visible
            advance(checkpoint, save)
            again, _ = started(start, storage)
            assert value(again) == saves + visible
            assert announced(storage, "run") == []
        assert committed > 1

    CODE = """
        import os, sys
        import numpy as np
        from milepost import Checkpoint, CheckpointManager, Variable, latest_checkpoint
        directory, kind = sys.argv[1:3]
        checkpoint = Checkpoint(v=Variable(np.zeros(10)))
        latest = latest_checkpoint(directory)
        if latest:
            checkpoint.restore(latest)
        save = CheckpointManager(checkpoint, directory, 2).save if kind == "managed" else lambda: checkpoint.save(directory + "/ckpt")
        rename = os.replace
        def killed(source, target):
            rename(source, target)
            if target.endswith("-%s.index" % sys.argv[3]):
                os.kill(os.getpid(), 9)
        os.replace = killed
        while True:
            checkpoint.v.assign(np.asarray(checkpoint.v) + 1)
            save()
        """

    @pytest.mark.parametrize("kind", ["plain", "managed"])
    def test_real_processes_lose_no_step(self, tmp_path: Path, kind: str) -> None:
        """Each is killed right after the commit point; the next begins with what that one had saved."""
        for number in range(1, 6):
            command: list[str | Path] = ["-c", textwrap.dedent(self.CODE), tmp_path, kind, str(number)]
            assert programs.run(command, imports=["numpy"]).returncode == -9
            path = latest_checkpoint(tmp_path)
            assert path == f"{tmp_path}/ckpt-{number}"
            checkpoint = Checkpoint(v=Variable(np.zeros(10)))
            checkpoint.restore(path)
            assert value(checkpoint) == number

    @pytest.mark.parametrize("start", [plain, managed])
    def test_the_next_run_removes_what_a_save_of_any_number_left(self, start: Start) -> None:
        """The next run may save under other numbers, and may have no manager."""
        storage, token = FaultyStorage(), new_token()
        storage.make_directory("run")
        storage.create(Temporary.claim("run/ckpt-7", token, 1).path).close()
        storage.create(Temporary("run/ckpt-7.data-00000-of-00001", token).path).close()
        advance(*started(start, storage))
        assert [name for name in storage.list("run") if name.endswith(".tmp")] == []

    def announcement(self, directory: Path, number: int, index: bytes) -> None:
        path = Temporary.announcement(f"{directory}/ckpt-{number}", new_token(), digest_of(index)).path
        Path(path).write_bytes(b"")

    def test_what_others_copied_there_is_not_mistaken_for_it(self, tmp_path: Path) -> None:
        """A save was announced and not committed; a file of that name is somebody else's."""
        checkpoint = Checkpoint(v=Variable(np.zeros(10)))
        path = checkpoint.save(tmp_path / "ckpt")
        self.announcement(tmp_path, 7, b"what was never written")
        for file in tmp_path.glob("ckpt-1.[id]*"):
            shutil.copy(file, str(file).replace("ckpt-1", "ckpt-7"))
        assert latest_checkpoint(tmp_path) == path
        manager = CheckpointManager(checkpoint, tmp_path, 3)
        assert manager.latest_checkpoint == path
        assert not list(tmp_path.glob("*.tmp"))

    def test_one_that_is_listed_already_or_older_is_not_the_latest(self, tmp_path: Path) -> None:
        """The process was killed after it had written the state file; and another library has gone on since."""
        checkpoint = Checkpoint(v=Variable(np.zeros(10)))
        paths = [checkpoint.save(tmp_path / "ckpt") for _ in range(3)]
        self.announcement(tmp_path, 1, Path(paths[0] + ".index").read_bytes())
        self.announcement(tmp_path, 3, Path(paths[2] + ".index").read_bytes())
        os.utime(paths[0] + ".index", (1, 1))
        assert latest_checkpoint(tmp_path) == paths[2]

    def test_one_of_a_living_process_is_left_to_it(self, tmp_path: Path) -> None:
        """A reader in between sees the older checkpoint, and no announcement goes away."""
        seen: list[Any] = []

        class Looking(LocalStorage):
            def create(self, path: str) -> Any:
                if os.path.basename(path).startswith("checkpoint."):
                    CheckpointManager(Checkpoint(v=Variable(np.zeros(10))), tmp_path, 3)
                    seen.append(latest_checkpoint(tmp_path))
                return super().create(path)

        manager = CheckpointManager(
            Checkpoint(v=Variable(np.zeros(10))), tmp_path, 3, options=CheckpointOptions(storage=Looking())
        )
        paths = [manager.save() for _ in range(3)]
        assert seen == [None, *paths[:2]]
        assert latest_checkpoint(tmp_path) == paths[-1]


class TestReadersBesideAWriter:
    CODE = """
        import sys, time
        import numpy as np
        from milepost import Checkpoint, CheckpointManager, Variable
        checkpoint = Checkpoint(v=Variable(np.ones(50000)))
        manager = CheckpointManager(checkpoint, sys.argv[1], 1)
        manager.save()
        print(flush=True)
        while True:
            manager.save()
        """

    def test_the_latest_is_always_found(self, tmp_path: Path) -> None:
        """A manager keeps one checkpoint, and there is a good one at every moment."""
        command = [sys.executable, "-c", textwrap.dedent(self.CODE), str(tmp_path)]
        found: set[str] = set()
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            try:
                while len(found) < 100 and process.poll() is None:
                    path = latest_checkpoint(tmp_path)
                    assert path is not None
                    found.add(path)
            finally:
                process.kill()
        assert len(found) == 100

    def test_a_directory_is_read_by_its_name(self, tmp_path: Path) -> None:
        """What is the latest when it is looked up may be gone when it is opened, and there is a newer one."""
        command = [sys.executable, "-c", textwrap.dedent(self.CODE), str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            found: set[int] = set()
            try:
                while len(found) < 100 and process.poll() is None:
                    assert load_variable(tmp_path, "v")[0] == 1
                    found.add(int(load_variable(tmp_path, "save_counter")))
            finally:
                process.kill()
        assert len(found) == 100
