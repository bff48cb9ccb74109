"""Pins and removals at the same time, in every order that matters."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointOptions, Variable
from milepost.bundle import index_path
from milepost.errors import CheckpointNotFoundError, StorageError
from milepost.series import pins
from milepost.series.notes import NOT_TO_COMPLETE, pin_path, temporaries
from milepost.series.pins import is_noted, is_pinned, pin, pinned_in, removal, unpin
from milepost.storage import MemoryStorage
from milepost.testing import FaultyStorage

PREFIX, OTHER = "run/ckpt-1", "run/ckpt-2"


class Interleaved(MemoryStorage):
    """A storage in which another process does something right before or after a file is created."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[str], object] = str
        self.after: Callable[[str], object] = str

    def create(self, path: str) -> Any:
        self.before(path)
        file = super().create(path)
        self.after(path)
        return file


@pytest.fixture
def storage() -> Any:
    return saved(Interleaved())


def saved(storage: Any, *prefixes: str) -> Any:
    for prefix in prefixes or (PREFIX,):
        Checkpoint(v=Variable(np.zeros(10))).write(prefix, CheckpointOptions(storage=storage))
    return storage


def pinned_beside(storage: Any, path: str) -> None:
    """Makes a pin as another process does, when a removal makes its note."""
    if "-removal-" in path:
        storage.before = str
        storage.create(pin_path(PREFIX)).close()


def test_a_pin_that_is_made_before_the_note_keeps_the_checkpoint(storage: Interleaved) -> None:
    """When the removal looked for it first, there was none."""
    storage.before = lambda path: pinned_beside(storage, path)
    with removal(storage, [PREFIX]) as free:
        assert free == []
        assert temporaries(storage, "run", of_removals=True) == []  # the process that pins need not wait
    assert is_pinned(storage, PREFIX)


def test_of_several_checkpoints_those_that_are_free_are_removed(storage: Interleaved) -> None:
    saved(storage, OTHER)
    storage.before = lambda path: pinned_beside(storage, path)
    with removal(storage, [PREFIX, OTHER], complete=True) as free:
        assert free == [OTHER]
        assert [note.final for note in temporaries(storage, "run", of_removals=True)] == [OTHER]
    assert temporaries(storage, "run", of_removals=True) == []


def test_a_checkpoint_that_is_removed_before_its_pin_is_made_is_not_pinned(storage: Interleaved) -> None:
    """When the pin looked for it first, it was there."""
    storage.after = lambda path: storage.remove(index_path(PREFIX)) if path == pin_path(PREFIX) else None
    with pytest.raises(CheckpointNotFoundError, match="just removed"):
        pin(storage, PREFIX)
    assert not is_pinned(storage, PREFIX)


def test_a_pin_waits_for_a_removal_that_did_not_see_it(storage: Interleaved) -> None:
    errors: list[BaseException] = []

    def pin_meanwhile() -> None:
        try:
            pin(storage, PREFIX)
        except CheckpointNotFoundError as error:
            errors.append(error)

    thread = threading.Thread(target=pin_meanwhile)
    with removal(storage, [PREFIX]) as free:
        assert free == [PREFIX]
        thread.start()
        while not is_pinned(storage, PREFIX):
            time.sleep(0.001)
        thread.join(0.1)
        assert thread.is_alive()
        storage.remove(index_path(PREFIX))
    thread.join()
    assert len(errors) == 1


def test_a_pin_waits_for_no_removal_of_another_checkpoint(
    storage: Interleaved, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(storage, OTHER)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    with removal(storage, [OTHER]):
        pin(storage, PREFIX)
    assert slept == []


def test_a_pinned_checkpoint_stays_pinned_when_it_is_pinned_again(storage: Interleaved) -> None:
    pin(storage, PREFIX)
    pin(storage, PREFIX)
    assert is_pinned(storage, PREFIX)
    storage.remove(index_path(PREFIX))
    with pytest.raises(CheckpointNotFoundError):
        pin(storage, PREFIX)
    assert is_pinned(storage, PREFIX)  # this call did not make it


def test_a_pin_that_cannot_be_written_is_an_error() -> None:
    """Not one that is there already, which the storage refuses in the same way."""
    storage = saved(FaultyStorage())
    storage.fail(len(storage.operations), errno.EACCES, only=["create"], times=None)
    with pytest.raises(StorageError):
        pin(storage, PREFIX)


def test_a_pin_that_cannot_be_made_durable_is_taken_back() -> None:
    storage = saved(FaultyStorage())
    storage.fail(len(storage.operations), errno.EIO, only=["sync_directory"], times=None)
    with pytest.raises(StorageError):
        pin(storage, PREFIX)
    assert not is_pinned(storage, PREFIX)


def test_what_is_pinned_already_gets_no_note() -> None:
    storage = saved(FaultyStorage())
    pin(storage, PREFIX)
    storage.settle()
    with removal(storage, [PREFIX], complete=True) as free:
        assert free == []
    assert "create" not in [operation.name for operation in storage.operations]


def test_a_pin_does_not_wait_for_ever(storage: Interleaved, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without file locks, the note of a dead process counts as in use."""
    monkeypatch.setattr(pins, "_PATIENCE", 0.02)
    with removal(storage, [PREFIX]):
        pin(storage, PREFIX)
        assert is_pinned(storage, PREFIX)


def test_the_pins_of_a_directory_are_those_of_its_checkpoints(storage: Interleaved) -> None:
    saved(storage, OTHER)
    pin(storage, OTHER)
    storage.create(pin_path("run/gone")).close()
    assert pinned_in(storage, "run") == {OTHER}


@pytest.mark.parametrize("change", [pin, unpin])
def test_it_is_durable(change: Callable[[Any, str], None]) -> None:
    storage = saved(FaultyStorage())
    if change is unpin:
        pin(storage, PREFIX)
    storage.settle()
    change(storage, PREFIX)
    assert {is_pinned(state, PREFIX) for state in storage.crash_states()} == {change is pin}


@pytest.mark.parametrize("complete", [True, False])
def test_the_note_of_a_removal_is_durable_only_if_the_next_manager_is_to_complete_it(complete: bool) -> None:
    storage = saved(FaultyStorage())
    with removal(storage, [PREFIX], complete=complete):
        durable = [bool(temporaries(state, "run", of_removals=True)) for state in storage.crash_states()]
        notes = temporaries(storage, "run", of_removals=True)
        assert [is_noted(storage, note) for note in notes] == [complete]
    assert durable
    assert all(durable) is complete


@pytest.mark.parametrize("complete", [True, False])
def test_a_removal_that_fails_before_the_index_is_gone_is_withdrawn(complete: bool) -> None:
    storage = saved(FaultyStorage())
    with suppress(KeyError), removal(storage, [PREFIX], complete=complete):
        raise KeyError
    assert temporaries(storage, "run", of_removals=True) == []


@pytest.mark.parametrize("complete", [True, False])
def test_a_removal_that_fails_after_the_index_is_gone_is_left_to_the_next_manager(complete: bool) -> None:
    storage = saved(FaultyStorage())
    with suppress(KeyError), removal(storage, [PREFIX], complete=complete):
        storage.remove(index_path(PREFIX))
        raise KeyError
    assert [note.final for note in temporaries(storage, "run", of_removals=True)] == [PREFIX]


class Full(Interleaved):
    """A storage that has no room for a new name until a file is removed."""

    def create(self, path: str) -> Any:
        if path not in self.room and not self.is_file(path) and not self.removed:
            raise StorageError("cannot create", errno=errno.ENOSPC, file=path)
        return super().create(path)

    room: frozenset[str] = frozenset()
    removed = True

    def remove(self, path: str) -> None:
        super().remove(path)
        self.removed = True


@pytest.fixture
def full() -> Full:
    storage: Full = saved(Full())
    storage.removed = False
    return storage


def test_where_there_is_no_room_for_a_note_the_index_makes_room(full: Full) -> None:
    with removal(full, [PREFIX], complete=True) as free:
        assert free == [PREFIX]
        (note,) = temporaries(full, "run", of_removals=True)
        assert note.digest not in (None, NOT_TO_COMPLETE)
        assert not full.is_file(index_path(PREFIX))


def test_an_index_that_has_made_room_comes_back_if_the_checkpoint_is_pinned(full: Full) -> None:
    file = full.open(index_path(PREFIX))
    index = file.read(0, file.size)
    full.after = lambda path: pinned_beside(full, path) if not is_pinned(full, PREFIX) else None
    with removal(full, [PREFIX], complete=True) as free:
        assert free == []
    file = full.open(index_path(PREFIX))
    assert file.read(0, file.size) == index
    assert temporaries(full, "run", of_removals=True) == []


def test_an_index_that_makes_too_little_room_comes_back(full: Full, monkeypatch: pytest.MonkeyPatch) -> None:
    full.room = frozenset({index_path(PREFIX)})
    monkeypatch.setattr(Full, "remove", MemoryStorage.remove)
    with pytest.raises(StorageError), removal(full, [PREFIX], complete=True):
        pass
    assert full.is_file(index_path(PREFIX))


def test_the_note_of_a_removal_that_is_not_to_be_completed_says_so(storage: Interleaved) -> None:
    with removal(storage, [PREFIX]):
        (note,) = temporaries(storage, "run", of_removals=True)
        assert note.digest == NOT_TO_COMPLETE
        assert storage.in_use(note.path)
        assert not is_noted(storage, note)
        storage.remove(index_path(PREFIX))
        assert not is_noted(storage, note)
    assert temporaries(storage, "run", of_removals=True) == []
