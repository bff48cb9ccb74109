"""`complete()` and `is_complete` of a manager."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost import (
    Checkpoint,
    CheckpointManager,
    CheckpointNotFoundError,
    CheckpointOptions,
    MilepostWarning,
    Variable,
)


def manager(directory: Path, **options: Any) -> CheckpointManager:
    return CheckpointManager(Checkpoint(v=Variable(1.0)), directory, 2, **options)


def test_a_run_is_complete_when_the_program_says_so(tmp_path: Path) -> None:
    series = manager(tmp_path)
    assert not series.is_complete
    series.save(1)
    assert not series.is_complete
    series.complete()
    assert series.is_complete
    assert manager(tmp_path).is_complete


def test_a_run_that_goes_on_is_not_complete(tmp_path: Path) -> None:
    series = manager(tmp_path)
    series.save(1)
    series.complete()
    series.save(2)
    assert not series.is_complete


def test_a_run_that_begins_anew_is_not_complete(tmp_path: Path) -> None:
    """Even if its checkpoint has the number of the one with which the other run was complete."""
    first = manager(tmp_path)
    first.save(1)
    first.complete()
    second = CheckpointManager(Checkpoint(v=Variable(2.0)), tmp_path, 2, options=CheckpointOptions(overwrite=True))
    second.save(1)
    assert not second.is_complete


def test_each_series_of_a_directory_is_complete_for_itself(tmp_path: Path) -> None:
    one, other = manager(tmp_path, checkpoint_name="one"), manager(tmp_path, checkpoint_name="other")
    one.save(1)
    one.complete()
    other.save(7)
    assert one.is_complete
    assert not other.is_complete


def test_a_save_in_the_background_is_waited_for(tmp_path: Path) -> None:
    series = manager(tmp_path, options=CheckpointOptions(enable_async=True))
    series.save(1)
    series.complete()
    assert series.is_complete


def test_the_manager_of_a_trainer_sees_what_its_run_has_saved(tmp_path: Path) -> None:
    early = manager(tmp_path)
    manager(tmp_path).save(1)
    early.complete()
    assert early.is_complete


def test_nothing_saved_cannot_be_complete(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError, match="nothing is saved"):
        manager(tmp_path).complete()


def test_a_last_step_that_is_not_saved_is_warned_of(tmp_path: Path) -> None:
    series = manager(tmp_path, every_steps=2)
    for step in (1, 2, 3):
        if series.should_save(step):
            series.save(step)
    with pytest.warns(MilepostWarning, match="step 3, which is not saved"):
        series.complete()
