"""The completion of removals that dead processes had begun, and what a power cut leaves of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointOptions, Variable
from milepost.bundle import index_path
from milepost.series.leftovers import data_files
from milepost.series.notes import claims, pin_path, temporaries
from milepost.series.pins import removal
from milepost.series.removal import finish_removals
from milepost.testing import FaultyStorage

PREFIX, OTHER = "run/ckpt-1", "run/ckpt-2"


def save(storage: Any, prefix: str, value: float = 0.0) -> None:
    Checkpoint(v=Variable(np.full(10, value))).write(prefix, CheckpointOptions(storage=storage, overwrite=True))


def dead_removal() -> FaultyStorage:
    """A directory of two checkpoints, in which a process died when it had begun to remove one."""
    storage = FaultyStorage()
    save(storage, PREFIX)
    save(storage, OTHER)
    with pytest.raises(KeyError), removal(storage, [PREFIX], complete=True):
        raise KeyError
    storage.settle()
    return storage


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
