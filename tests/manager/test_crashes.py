"""A managed run on a disk that forgets and refuses: it can always go on, and loses nothing that it was told is safe."""

from __future__ import annotations

import contextlib
import errno
import random
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Variable, latest_checkpoint
from milepost.bundle import find_prefixes, open_bundle
from milepost.errors import MilepostWarning, SkippedCheckpointWarning, StorageError, UnrestoredWarning
from milepost.storage import LocalStorage
from milepost.testing import FaultyStorage
from tests import programs


def open_run(storage: Any, keep: int | None = 2) -> tuple[Any, CheckpointManager]:
    checkpoint = Checkpoint(v=Variable(np.zeros(10)))
    return checkpoint, CheckpointManager(checkpoint, "run", keep, options=CheckpointOptions(storage=storage))


def train(storage: Any, saves: int, keep: int | None = 2) -> list[int]:
    """Goes on from what there is; returns after how many operations each save had returned."""
    checkpoint, manager = open_run(storage, keep)
    manager.restore_or_initialize()
    returned = []
    for _ in range(saves):
        checkpoint.v.assign(np.asarray(checkpoint.v) + 1)
        manager.save()
        returned.append(len(getattr(storage, "operations", ())))
    return returned


def step(storage: Any) -> int:
    """How far a run gets back that starts now."""
    checkpoint, manager = open_run(storage)
    manager.restore_or_initialize()
    assert (np.asarray(checkpoint.v) == np.asarray(checkpoint.v)[0]).all()
    return int(np.asarray(checkpoint.v)[0])


def files_of(manager: CheckpointManager, storage: Any) -> list[str]:
    names = [path.removeprefix("run/") for path in manager.checkpoints]
    return [name for name in storage.list("run") if not any(name.startswith(f"{own}.") for own in names)]


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # A restore that could not read its last value says which one, when it is collected.
        warnings.simplefilter("ignore", UnrestoredWarning)
        yield


class TestPowerCut:
    @pytest.mark.parametrize("keep", [1, 2])
    @pytest.mark.parametrize("earlier", [0, 3])
    def test_what_returned_is_found_and_the_run_goes_on(self, earlier: int, keep: int) -> None:
        """At any point of three saves with retention; no checkpoint on the list is ever found damaged."""
        storage = FaultyStorage()
        if earlier:
            train(storage, earlier, keep)
            storage.settle()
        returned = train(storage, 3, keep)
        seen: set[Any] = set()
        for point in storage.crash_points():
            acknowledged = earlier + sum(count <= point for count in returned)
            for state in storage.crash_states(point, limit=12):
                key = acknowledged, frozenset(state.contents().items())
                if key in seen:
                    continue
                seen.add(key)
                for prefix in find_prefixes(state, "run"):
                    with open_bundle(state, prefix) as reader:
                        reader.verify()  # Also of those that are being deleted: an index never lacks its data.
                found = step(state)
                assert found in (acknowledged, acknowledged + 1), state
                train(state, 1, keep)
                assert step(state) == found + 1, state
                _, manager = open_run(state)
                assert files_of(manager, state) == ["checkpoint"], state
                assert len(manager.checkpoints) == min(keep, found + 1), state

    def test_a_run_whose_first_save_was_cut_off_goes_on(self) -> None:
        """The checkpoint is whole, nothing names it, and yet it is not another run's."""
        storage = FaultyStorage()
        train(storage, 1)
        finished = 0
        for point in storage.crash_points():
            for state in storage.crash_states(point, limit=12):
                unnamed = state.is_file("run/ckpt-1.index") and not state.is_file("run/checkpoint")
                finished += unnamed
                assert step(state) in ((1,) if unnamed else (0, 1))
        assert finished


class TestKilledProcess:
    def test_a_second_crash_while_starting(self) -> None:
        """What a run does at its start relies on nothing that a dead one left unsynced."""
        storage = FaultyStorage()
        train(storage, 2)
        count = len(storage.operations)
        for number in range(0, count, 3):
            storage = FaultyStorage()
            storage.fail(number, errno.EIO, times=None)
            with contextlib.suppress(StorageError), warnings.catch_warnings():
                warnings.simplefilter("ignore", MilepostWarning)
                train(storage, 2)
            storage._faults.clear()
            storage._writers.clear()
            found = step(storage)
            for state in storage.crash_states(limit=12):
                assert step(state) <= found
            train(storage, 1)
            assert {step(state) for state in storage.crash_states(limit=12)} == {found + 1}

    CODE = """
import sys
import numpy as np
from milepost import Checkpoint, CheckpointManager, Variable
checkpoint = Checkpoint(v=Variable(np.zeros(1000)))
manager = CheckpointManager(checkpoint, sys.argv[1], 2)
manager.restore_or_initialize()
print(int(np.asarray(checkpoint.v)[0]), flush=True)
while True:
    checkpoint.v.assign(np.asarray(checkpoint.v) + 1)
    manager.save()
    print(int(np.asarray(checkpoint.v)[0]), flush=True)
"""

    def test_killed_again_and_again(self, tmp_path: Path) -> None:
        """Each run starts where the one before was told that it is safe, or at the next step."""
        seed = random.randrange(2**32)
        chance = random.Random(seed)
        acknowledged = 0
        for _ in range(10):
            command: list[str | Path] = ["-c", self.CODE, tmp_path / "run"]
            with (
                tempfile.TemporaryFile("w") as errors,
                programs.start(command, imports=["numpy"], stdout=subprocess.PIPE, stderr=errors) as process,
            ):
                assert process.stdout
                started = int(process.stdout.readline())
                assert started in (acknowledged, acknowledged + 1), f"seed {seed}"
                try:
                    process.wait(chance.uniform(0, 0.05))
                except subprocess.TimeoutExpired:
                    process.kill()
                acknowledged = int([str(started), *process.stdout.read().split()][-1])
        manager = CheckpointManager(Checkpoint(), tmp_path / "run", 2)
        assert manager.latest_checkpoint == latest_checkpoint(tmp_path / "run")


class TestRefusal:
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
    @pytest.mark.parametrize("effect", ["nothing", "all"])
    def test_after_any_refusal_the_run_goes_on(self, code: int, effect: Any) -> None:
        """In the same process, with the same objects; then everything is as it would have been."""
        storage = FaultyStorage()
        train(storage, 2)
        storage.settle()
        train(storage, 1)
        for number in range(len(storage.operations)):
            storage = FaultyStorage()
            train(storage, 2)
            storage.settle()
            storage.fail(number, code, effect=effect)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MilepostWarning)
                try:
                    checkpoint, manager = open_run(storage)
                    restored = manager.restore_or_initialize()
                except StorageError:
                    assert step(storage) == 2
                    continue
                where = storage.operations[number] if number < len(storage.operations) else "the save"
                if restored != "run/ckpt-2":
                    assert restored == "run/ckpt-1", where  # EIO is taken for damage.
                    continue
                checkpoint.v.assign(np.full(10, 3.0))
                with contextlib.suppress(StorageError):
                    manager.save()
                where = storage.operations[number]
                assert step(storage) in (2, 3), where
                checkpoint.v.assign(np.full(10, 4.0))
                manager.save()
            for state in (storage, *storage.crash_states(limit=4)):
                assert step(state) == 4, (where, state)


@pytest.mark.parametrize("verify", ["none", "files", "checksums"])
def test_blocks_that_the_disk_cannot_read_are_damage(tmp_path: Path, verify: Any) -> None:
    """However little of a checkpoint is verified before it is restored, an older one takes its place."""

    class Unreadable(LocalStorage):
        def open(self, path: str) -> Any:
            file: Any = super().open(path)
            if "ckpt-2.data" in path:
                file.read = file.read_into = refuse
            return file

    def refuse(*_: object) -> Any:
        raise StorageError("cannot read", errno=errno.EIO, file="ckpt-2")

    checkpoint: Any = Checkpoint(v=Variable(np.zeros(10)))
    manager = CheckpointManager(checkpoint, tmp_path, 2)
    for value in (1.0, 2.0):
        checkpoint.v.assign(np.full(10, value))
        manager.save()
    fresh: Any = Checkpoint(v=Variable(np.zeros(10)))
    manager = CheckpointManager(fresh, tmp_path, 2, verify=verify, options=CheckpointOptions(storage=Unreadable()))
    with pytest.warns(SkippedCheckpointWarning, match="ckpt-2"):
        assert str(manager.restore_or_initialize()).endswith("ckpt-1")
    assert float(np.asarray(fresh.v)[0]) == 1.0


def test_a_full_disk_in_the_middle_of_a_save(tmp_path: Path) -> None:
    """On real files: the error names the cause, the run goes on when there is room again."""

    class Small(LocalStorage):
        room = True

        def create(self, path: str) -> Any:
            file = super().create(path)
            if not self.room:

                def write(offset: int, buffers: Any) -> None:
                    raise StorageError("cannot write", errno=errno.ENOSPC, file=path)

                file.write = write  # type: ignore[method-assign]
            return file

    storage = Small()
    checkpoint = Checkpoint(v=Variable(np.zeros(10)))
    options = CheckpointOptions(storage=storage)
    manager = CheckpointManager(checkpoint, tmp_path, 2, options=options)
    storage.room = False
    with pytest.raises(StorageError) as caught:
        manager.save()
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []
    storage.room = True
    assert manager.save() == f"{tmp_path}/ckpt-1"
    assert len(list(tmp_path.iterdir())) == 3
