"""Which saves the guard of series refuses. What runs notice of it is tested in `tests/manager/test_guards.py`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import pytest

from milepost import Checkpoint, CheckpointOptions, Variable
from milepost.errors import CheckpointExistsError
from milepost.series.guard import SeriesGuard
from milepost.storage import MemoryStorage, Storage
from milepost.storage.default import DEFAULT_STORAGE

Made = TypeVar("Made", bound=Storage)
OF_A_RUN = ("ckpt-1", "ckpt-2", "other-1")


@pytest.fixture
def storage() -> Any:
    """A directory with two series of another run."""
    return with_checkpoints(MemoryStorage(), *(f"run/{name}" for name in OF_A_RUN))


def with_checkpoints(storage: Made, *prefixes: str) -> Made:
    for prefix in prefixes:
        Checkpoint(v=Variable(1.0)).write(prefix, CheckpointOptions(storage=storage))
    return storage


def is_refused(guard: SeriesGuard, storage: Any, prefix: str) -> bool:
    try:
        guard.check(storage, prefix)
    except CheckpointExistsError:
        return True
    return False


@pytest.mark.parametrize(
    ("prefix", "refused"),
    [
        ("run/ckpt-1", True),
        ("run/ckpt-3", True),
        ("run/other-2", True),
        ("run/new-1", False),
        ("run/ck-1", False),
        ("run/ckpt-3-1", False),
        ("elsewhere/ckpt-1", False),
    ],
)
def test_the_first_save_of_a_run(storage: MemoryStorage, prefix: str, refused: bool) -> None:
    """Every series of its directory is another run's, and every other name is free."""
    assert is_refused(SeriesGuard(), storage, prefix) == refused


def test_a_checkpoint_without_a_number_is_no_series() -> None:
    """A numbered one may be saved beside it, and none in its place."""
    storage = with_checkpoints(MemoryStorage(), "run/ckpt")
    assert not is_refused(SeriesGuard(), storage, "run/ckpt-1")
    assert is_refused(SeriesGuard(), storage, "run/ckpt")


def test_an_own_series_gives_no_right_to_another_one_of_its_directory(storage: MemoryStorage) -> None:
    guard = SeriesGuard()
    committed = guard.on_commit(storage, "run/own-1")
    assert not guard.is_own(storage, "run/own-2")  # it is not saved yet
    with_checkpoints(storage, "run/own-1")
    committed()
    assert guard.is_own(storage, "run/own-2")
    assert not is_refused(guard, storage, "run/own-2")
    for prefix in ("run/ckpt-3", "run/other-2"):
        assert not guard.is_own(storage, prefix)
        assert is_refused(guard, storage, prefix)


def test_a_series_of_the_same_name_elsewhere_is_not_its_own(storage: MemoryStorage) -> None:
    guard = SeriesGuard()
    with_checkpoints(storage, "elsewhere/ckpt-1")
    guard.on_commit(storage, "elsewhere/ckpt-1")()
    assert not guard.is_own(storage, "run/ckpt-1")
    assert is_refused(guard, storage, "run/ckpt-3")
    assert is_refused(guard, with_checkpoints(MemoryStorage(), "elsewhere/ckpt-1"), "elsewhere/ckpt-2")


def test_what_was_restored_gives_a_right_to_each_series_of_its_directory_alone(storage: MemoryStorage) -> None:
    guard = SeriesGuard()
    with_checkpoints(storage, "elsewhere/ckpt-1")
    guard.restored(storage, "run/ckpt-1")
    assert not is_refused(guard, storage, "run/ckpt-3")
    assert not is_refused(guard, storage, "run/other-2")
    assert is_refused(guard, storage, "elsewhere/ckpt-2")
    assert not guard.is_own(storage, "run/ckpt-3")


@pytest.mark.parametrize("how", ["saved", "restored"])
def test_a_directory_that_was_moved_is_known_by_the_checkpoint_in_it(tmp_path: Path, how: str) -> None:
    guard = SeriesGuard()
    with_checkpoints(DEFAULT_STORAGE, f"{tmp_path}/run/ckpt-1", f"{tmp_path}/run/other-1")
    if how == "saved":
        guard.on_commit(DEFAULT_STORAGE, f"{tmp_path}/run/ckpt-1")()
    else:
        guard.restored(DEFAULT_STORAGE, f"{tmp_path}/run/ckpt-1")
    os.rename(tmp_path / "run", tmp_path / "moved")
    assert not is_refused(guard, DEFAULT_STORAGE, f"{tmp_path}/moved/ckpt-2")
    assert is_refused(guard, DEFAULT_STORAGE, f"{tmp_path}/moved/other-2") == (how == "saved")
    os.remove(tmp_path / "moved" / "ckpt-1.index")
    assert is_refused(guard, DEFAULT_STORAGE, f"{tmp_path}/moved/other-2")


def test_a_storage_in_memory_lives_as_long_as_the_guard() -> None:
    """The identity of one that is gone could be that of another one."""
    guard = SeriesGuard()
    storages = [with_checkpoints(MemoryStorage(), "run/ckpt-1") for _ in range(2)]
    for _ in range(2):
        guard.restored(storages[0], "run/ckpt-1")
        guard.on_commit(storages[1], "run/ckpt-1")()
        guard.restored(DEFAULT_STORAGE, "run/ckpt-1")
    assert guard._storages == storages


def test_what_came_meanwhile_is_said_as_that(storage: MemoryStorage) -> None:
    with pytest.raises(CheckpointExistsError, match="restored none of them") as caught:
        SeriesGuard().check(storage, "run/ckpt-3")
    assert caught.value.found == "ckpt-1 and ckpt-2"
    with pytest.raises(CheckpointExistsError, match="at the same time") as caught:
        SeriesGuard().check(storage, "run/other-2", at_commit=True)
    assert caught.value.found == "other-1"
