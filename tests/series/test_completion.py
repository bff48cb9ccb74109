"""The note that a run is complete: its text, and the faults that it meets."""

from __future__ import annotations

import pytest

from milepost import CheckpointNotFoundError
from milepost.series.completion import is_complete_with, note_completion
from milepost.storage import MemoryStorage


@pytest.fixture
def storage() -> MemoryStorage:
    made = MemoryStorage()
    with made.create("run/ckpt-3.index") as file:
        file.write(0, [b"index"])
    return made


def test_its_text(storage: MemoryStorage) -> None:
    note_completion(storage, "run/ckpt-3")
    file = storage.open("run/ckpt.complete")
    assert file.read(0, file.size) == b"ckpt-3 590407b549d6e3b4\n"


def test_it_counts_for_its_checkpoint_alone(storage: MemoryStorage) -> None:
    assert not is_complete_with(storage, "run/ckpt-3")
    note_completion(storage, "run/ckpt-3")
    assert is_complete_with(storage, "run/ckpt-3")
    assert not is_complete_with(storage, "run/ckpt-2")


def test_a_checkpoint_that_is_gone(storage: MemoryStorage) -> None:
    with pytest.raises(CheckpointNotFoundError):
        note_completion(storage, "run/ckpt-4")
