"""Plugs that are pulled in the middle of a save, a deletion and a pin, with policies, on a disk that forgets."""

from __future__ import annotations

import errno
import os
import signal
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Variable, latest_checkpoint
from milepost.bundle import find_prefixes, open_bundle
from milepost.errors import MilepostWarning, StorageError, UnrestoredWarning
from milepost.retention import Best, EverySteps, Policy
from milepost.storage import MemoryStorage
from milepost.tensorflow1 import remove_checkpoint
from milepost.testing import FaultyStorage
from tests import programs

LOSSES = {1: 0.5, 2: 0.1, 3: 0.9, 4: 0.8, 5: 0.3, 6: 0.7}


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UnrestoredWarning)
        yield


BEST = Best(1, by="loss", mode="min")


def open_run(storage: Any, newest: int = 1, keep: Policy | None = BEST, **arguments: Any) -> CheckpointManager[Any]:
    checkpoint = Checkpoint(v=Variable(np.zeros(10)))
    return CheckpointManager(
        checkpoint, "run", newest, options=CheckpointOptions(storage=storage), keep=keep, **arguments
    )


def save(manager: CheckpointManager[Any], step: int) -> None:
    manager.checkpoint.v.assign(np.full(10, float(step)))
    manager.save(step, metrics={"loss": LOSSES[step]}, metadata={"step": step})


def begun(*steps: int, **arguments: Any) -> tuple[FaultyStorage, CheckpointManager[Any]]:
    storage = FaultyStorage()
    manager = open_run(storage, **arguments)
    for step in steps:
        save(manager, step)
    storage.settle()
    return storage, manager


def states(storage: FaultyStorage) -> Any:
    """What a power cut may leave at any moment, each once."""
    seen = set()
    for point in storage.crash_points():
        for state in storage.crash_states(point, limit=12):
            key = frozenset(state.contents().items())
            if key not in seen:
                seen.add(key)
                yield state, point == len(storage.operations)


def restored(storage: Any) -> int:
    manager = open_run(storage)
    assert manager.restore_or_initialize()
    return int(np.asarray(manager.checkpoint.v)[0])


def is_tidy(storage: Any, manager: CheckpointManager[Any]) -> bool:
    """Whether there is nothing but the checkpoints on the list, whole, their pins and the state file."""
    for prefix in find_prefixes(storage, "run"):
        with open_bundle(storage, prefix) as reader:
            reader.verify()
    own = [f"ckpt-{step}" for step in manager.steps]
    others = [name for name in storage.list("run") if name.partition(".")[0] not in own]
    return others == (["checkpoint"] if own else [])


def test_saves_keep_the_best_through_any_crash() -> None:
    """The best and the newest are there with their metrics, and the next run tidies up."""
    storage, manager = begun(1, 2)
    for step in (3, 4):
        save(manager, step)
    for state, is_over in states(storage):
        again = open_run(state)
        assert again.best_step() == 2, state
        assert again.metrics(2) == {"loss": 0.1}
        newest = again.latest_step or 0
        assert newest == 4 if is_over else newest in (2, 3, 4), state
        assert again.metadata(newest) == {"step": newest}
        assert restored(state) == newest
        again.restore(2)
        save(again, 6)
        assert again.steps == [2, 6], state
        assert is_tidy(state, open_run(state)), state


@pytest.mark.parametrize("doomed", [1, 2, 3])
@pytest.mark.parametrize("by", ["manager", "function"])
def test_a_deletion_happens_as_a_whole(doomed: int, by: str) -> None:
    """After any crash the checkpoint is there, listed and whole, or the next manager has removed all of it."""
    storage, manager = begun(1, 2, 3, newest=5)
    if by == "manager":
        manager.delete(doomed)
    else:
        remove_checkpoint(f"run/ckpt-{doomed}", options=CheckpointOptions(storage=storage))
    left = [step for step in (1, 2, 3) if step != doomed]
    outcomes = set()
    for state, is_over in states(storage):
        reader = latest_checkpoint(
            "run", options=CheckpointOptions(storage=state)
        )  # before a manager has tidied up, and without a warning
        again = open_run(state, newest=5)
        outcomes.add(tuple(again.steps))
        assert again.steps == left if is_over else again.steps in ([1, 2, 3], left), state
        assert is_tidy(state, again), state
        assert again.latest_step == again.steps[-1] == restored(state), state
        assert reader in (f"run/ckpt-{left[-1]}", "run/ckpt-3")
    assert outcomes == {(1, 2, 3), tuple(left)}


def test_the_deletion_of_the_only_checkpoint() -> None:
    """After any crash the run goes on or begins anew; no crash leaves a list of nothing but lost checkpoints."""
    storage, manager = begun(1)
    manager.delete(1)
    assert (manager.steps, manager.latest_step, storage.list("run")) == ([], None, [])
    for state, is_over in states(storage):
        again = open_run(state)
        assert again.restore_or_initialize() in ((None,) if is_over else (None, "run/ckpt-1")), state
        assert is_tidy(state, again), state


def test_a_second_crash_while_a_deletion_is_completed() -> None:
    """The manager that completes it can be cut off too."""
    storage, manager = begun(1, 2, 3, newest=5)
    manager.delete(2)
    for first, _ in states(storage):
        open_run(first, newest=5)
        for second, _ in states(first):
            again = open_run(second, newest=5)
            assert again.steps in ([1, 3], [1, 2, 3]), (first, second)
            assert is_tidy(second, again), (first, second)


def test_a_pin_that_returned_is_there_after_any_crash() -> None:
    """It holds against the retention of the next run; before it returned, it is there or not."""
    storage, manager = begun(1, 2)
    manager.unpin(2)
    assert not any(operation.steps for operation in storage.operations)
    manager.pin(2)
    for state, is_over in states(storage):
        again = open_run(state, keep=None)
        was_pinned = again.pinned == [2]
        assert was_pinned or not is_over, state
        again.restore_or_initialize()
        for step in (3, 4):
            save(again, step)
        assert again.steps == ([2, 4] if was_pinned else [4]), state
        assert is_tidy(state, again), state
    storage.settle()
    manager.unpin(2)
    for state, is_over in states(storage):
        assert open_run(state).pinned in ([], *([] if is_over else [[2]]))


@pytest.mark.parametrize("action", ["delete", "pin", "unpin"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_refused_operation_leaves_a_run_that_goes_on(action: str, code: int) -> None:
    """Whatever the disk refuses, an error says so, nothing else is lost, and to try again works."""
    storage, manager = begun(1, 2, 3, newest=5)
    if action == "unpin":
        manager.pin(2)
        storage.settle()
    getattr(manager, action)(2)
    for number in range(len(storage.operations)):
        storage, manager = begun(1, 2, 3, newest=5)
        if action == "unpin":
            manager.pin(2)
            storage.settle()
        storage.fail(number, code)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MilepostWarning)
            try:
                getattr(manager, action)(2)
            except StorageError:
                if action != "delete" or 2 in manager.steps:
                    getattr(manager, action)(2)
            again = open_run(storage, newest=5)
        # what this process still holds open is not in its way
        assert again.steps == ([1, 3] if action == "delete" else [1, 2, 3]), number
        assert again.pinned == ([2] if action == "pin" else []), number


def test_what_was_kept_stays_managed_after_a_crash() -> None:
    """Also beside `keep_checkpoint_every_n_hours`, whose last time is later."""
    storage = MemoryStorage()
    manager = open_run(storage, keep_checkpoint_every_n_hours=1e-9)
    for step in (2, 3, 4, 5):
        save(manager, step)
    assert manager.steps == [2, 5]
    again = open_run(storage, keep_checkpoint_every_n_hours=1e-9)
    assert (again.steps, again.best_step()) == ([2, 5], 2)
    assert sorted(find_prefixes(storage, "run")) == [f"run/ckpt-{step}" for step in (2, 3, 4, 5)]


def test_old_arguments_and_policies_together() -> None:
    """A checkpoint is kept if any rule keeps it."""
    manager = open_run(MemoryStorage(), 2, BEST | EverySteps(3))
    for step in range(1, 7):
        save(manager, step)
    assert manager.steps == [2, 3, 5, 6]


class TestKilledProcess:
    """SIGKILL before each file operation, with real files, locks and processes."""

    CODE = """
import os, signal, sys
import numpy as np
from milepost import Checkpoint, CheckpointManager, CheckpointOptions, Variable
from milepost.retention import Best
from milepost.storage import LocalStorage

left = None

class Killing(LocalStorage):
    pass

def killing(name):
    method = getattr(LocalStorage, name)
    def call(self, *arguments):
        global left
        if left is not None:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
        return method(self, *arguments)
    return call

for name in ("create", "rename", "remove", "sync_directory"):
    setattr(Killing, name, killing(name))
options = CheckpointOptions(storage=Killing())
checkpoint = Checkpoint(v=Variable(np.zeros(1000)))
manager = CheckpointManager(checkpoint, sys.argv[1], 2, keep=Best(1, by="loss", mode="min"), options=options)
for step, loss in [(1, 0.1), (2, 0.3), (3, 0.2)]:
    checkpoint.v.assign(np.full(1000, float(step)))
    manager.save(step, metrics={"loss": loss})
left = int(sys.argv[3])
if sys.argv[2] == "delete":
    manager.delete(2)
elif sys.argv[2] == "pin":
    manager.pin(2)
else:
    checkpoint.v.assign(np.full(1000, 4.0))
    manager.save(4, metrics={"loss": 0.05})  # the best one now, so that 1 and 2 go
print("done", flush=True)
"""
    OUTCOMES: ClassVar = {
        "delete": ([1, 2, 3], [1, 3], []),
        "pin": ([1, 2, 3], [1, 2, 3], [2]),
        "save": ([1, 2, 3], [3, 4], []),
    }

    @pytest.mark.parametrize("action", OUTCOMES)
    @pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL on Windows")
    def test_killed_before_each_operation(self, tmp_path: Path, action: str) -> None:
        """The next manager finds the old or the new state, whole and tidy, and the run goes on."""
        before, after, pinned = self.OUTCOMES[action]
        for number in range(60):
            directory = tmp_path / str(number)
            done = programs.run(["-c", self.CODE, directory, action, str(number)], imports=["numpy"])
            manager = CheckpointManager(Checkpoint(v=Variable(np.zeros(1000))), directory, 2, keep=BEST)
            if done.returncode == 0:
                assert (manager.steps, manager.pinned) == (after, pinned)
                break
            assert done.returncode == -signal.SIGKILL
            unpruned = [step for step in [1, 2, 3, 4] if (directory / f"ckpt-{step}.index").exists()]
            assert manager.steps in (before, after, unpruned), number
            assert manager.pinned in ([], pinned)
            assert is_tidy_directory(directory, manager), number
            for step in manager.steps:  # none on the list is missing or damaged
                manager.restore(step).assert_consumed()
            manager.restore()
            manager.save(5, metrics={"loss": 0.01})
            assert manager.latest_step == manager.best_step() == 5
            assert is_tidy_directory(directory, manager), number
        else:
            pytest.fail("60 operations are too few")
        assert number > 1


def is_tidy_directory(directory: Path, manager: CheckpointManager[Any]) -> bool:
    own = {f"ckpt-{step}" for step in manager.steps}
    return {path.name.partition(".")[0] for path in directory.iterdir()} <= {*own, "checkpoint"}
