"""The completion of removals that dead processes had begun, and what a power cut leaves of it."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointManager, CheckpointOptions, StorageError, Variable
from milepost.bundle import index_path
from milepost.series.leftovers import data_files, sweep_leftovers
from milepost.series.notes import claims, pin_path, temporaries
from milepost.series.pins import removal
from milepost.series.removal import finish_removals, remove_for_good
from milepost.series.series import known_checkpoints
from milepost.testing import FaultyStorage

PREFIX, OTHER = "run/ckpt-1", "run/ckpt-2"


def save(storage: Any, prefix: str, value: float = 0.0) -> None:
    Checkpoint(v=Variable(np.full(10, value))).write(prefix, CheckpointOptions(storage=storage, overwrite=True))


def dead_removal() -> FaultyStorage:
    """A directory of two checkpoints, in which a process died when it had begun to remove one."""
    storage = FaultyStorage()
    save(storage, PREFIX)
    save(storage, OTHER)
    with removal(storage, [PREFIX], complete=True):
        return FaultyStorage(storage.contents())


def test_a_completed_removal_is_durable_before_its_note_is_gone() -> None:
    """Otherwise nothing would show to whom the data belongs. And no data is given up to the next sweep while its index may come back."""
    storage = dead_removal()
    finish_removals(storage, "run")
    for point in storage.crash_points():
        for state in storage.crash_states(point):
            has_index = state.is_file(index_path(PREFIX))
            is_claimed = bool(claims(state, PREFIX))
            is_noted_still = any(note.final == PREFIX for note in temporaries(state, "run", of_removals=True))
            assert is_noted_still or (not has_index and is_claimed), state.story
            assert not (has_index and is_claimed), state.story
            assert state.is_file(index_path(OTHER))
    assert temporaries(storage, "run", of_removals=True) == []
    assert list(data_files(storage, PREFIX))


def test_a_removal_is_not_completed_if_its_checkpoint_was_pinned_or_replaced() -> None:
    storage = dead_removal()
    storage.create(pin_path(PREFIX)).close()
    finish_removals(storage, "run")
    assert storage.is_file(index_path(PREFIX))
    assert temporaries(storage, "run", of_removals=True) == []

    storage = dead_removal()
    save(storage, PREFIX, 1.0)
    finish_removals(storage, "run")
    assert storage.is_file(index_path(PREFIX))
    assert temporaries(storage, "run", of_removals=True) == []


def test_a_removal_that_is_running_is_left_alone() -> None:
    storage = FaultyStorage()
    save(storage, PREFIX)
    with removal(storage, [PREFIX], complete=True):
        finish_removals(storage, "run")
        assert storage.is_file(index_path(PREFIX))
        assert len(temporaries(storage, "run", of_removals=True)) == 1


def listed(storage: Any) -> list[str]:
    state = known_checkpoints(storage, "run")
    return [] if state is None else list(state.all_model_checkpoint_paths)


@pytest.fixture
def managed() -> FaultyStorage:
    """A directory of three checkpoints that its state file lists."""
    storage = FaultyStorage()
    manager = CheckpointManager(
        Checkpoint(v=Variable(np.zeros(10))), "run", None, options=CheckpointOptions(storage=storage)
    )
    for step in (1, 2, 3):
        manager.save(step)
    storage.settle()
    return storage


def test_a_checkpoint_whose_index_cannot_be_removed_stays_on_the_list(
    managed: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remove(path: str) -> None:
        if path == index_path(PREFIX):
            raise StorageError("cannot remove", errno=errno.EPERM, file=path)
        FaultyStorage.remove(managed, path)

    monkeypatch.setattr(managed, "remove", remove)
    with pytest.raises(StorageError):
        remove_for_good(managed, PREFIX)
    assert listed(managed) == [PREFIX, OTHER, "run/ckpt-3"]
    assert temporaries(managed, "run", of_removals=True) == []


def test_the_list_is_written_after_the_files_are_gone_if_there_is_no_room_before(managed: FaultyStorage) -> None:
    managed.fail(0, errno.ENOSPC, only=["write"])
    assert remove_for_good(managed, PREFIX)
    assert listed(managed) == [OTHER, "run/ckpt-3"]
    assert not managed.is_file(index_path(PREFIX))


def test_a_removal_on_a_full_device_is_completed_after_a_crash_at_any_point(managed: FaultyStorage) -> None:
    managed.fail(0, errno.ENOSPC, only=["write"])
    remove_for_good(managed, PREFIX)
    for point in managed.crash_points():
        for state in managed.crash_states(point):
            begun = not state.is_file(index_path(PREFIX)) or temporaries(state, "run", of_removals=True)
            finish_removals(state, "run")
            sweep_leftovers(state, "run")
            assert (PREFIX in listed(state)) == state.is_file(index_path(PREFIX)), state.story
            assert not begun or not data_files(state, PREFIX), state.story
            assert listed(state)[-2:] == [OTHER, "run/ckpt-3"]
