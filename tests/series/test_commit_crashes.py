"""The commit protocol against a disk that forgets, reorders and refuses: at every point, in every legal way."""

from __future__ import annotations

import contextlib
import errno
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from milepost.bundle import BundleWriter, index_path, open_bundle
from milepost.errors import CheckpointNotFoundError, MilepostWarning, StorageError
from milepost.series.commit import commit_file
from milepost.series.leftovers import sweep_leftovers, visible_shards
from milepost.testing import FaultyStorage
from tests.bundles import commit_bundle

P = "run/ckpt-1"
OLD, NEW = 1, 2
FOREIGN = {"run/notes": b"mine", "run/ckpt-2.data-00000-of-00001": b"a copy under way", "run/ckpt-1_temp": None}


def fill(number: int, shards: int = 1) -> Callable[[BundleWriter], None]:
    def add(writer: BundleWriter) -> None:
        for shard in range(shards):
            writer.add(f"v{shard}", np.full(50, number, np.int32), shard=shard)

    return add


def disk(old_shards: int = 0, **more: bytes) -> FaultyStorage:
    """A disk at rest, with an old checkpoint of so many shards, if any."""
    storage = FaultyStorage(FOREIGN)
    if old_shards:
        commit_bundle(storage, P, fill(OLD, old_shards), shards=old_shards)
    storage.settle()
    return storage


def found(storage: FaultyStorage) -> int | None:
    """Which checkpoint is visible, after a look at every byte; None if there is none."""
    try:
        with open_bundle(storage, P) as reader:
            reader.verify()
            return int(reader.read("v0")[0])
    except CheckpointNotFoundError:
        # Data that is missing beside a visible index is no answer.
        assert not storage.is_file(index_path(P))
        return None


def expected_files(storage: FaultyStorage) -> set[str]:
    """Exactly those of the visible checkpoint, and foreign ones."""
    shards = visible_shards(storage, P)
    own = [] if shards is None else [index_path(P), *(f"{P}.data-{n:05}-of-{shards:05}" for n in range(shards))]
    return {"run", *FOREIGN, *own}


def distinct(states: Iterator[FaultyStorage], seen: set[frozenset[Any]]) -> Iterator[FaultyStorage]:
    for state in states:
        key = frozenset(state.contents().items())
        if key not in seen:
            seen.add(key)
            yield state


def operations(run: Callable[[FaultyStorage], object], make: Callable[[], FaultyStorage]) -> list[str]:
    storage = make()
    run(storage)
    return [operation.name for operation in storage.operations]


def die(storage: FaultyStorage) -> None:
    """The process ends: its files are no longer in use, but nothing is lost yet."""
    storage._faults.clear()
    storage._writers.clear()


def save(storage: FaultyStorage) -> None:
    commit_bundle(storage, P, fill(NEW, 2), shards=2)


old_shards = pytest.mark.parametrize("old_shards", [0, 1, 2])


class TestPowerCut:
    @old_shards
    def test_old_or_new_never_neither_and_sweeping_leaves_nothing_else(self, old_shards: int) -> None:
        """After a power cut at any point, and after another one while the leftovers of the first are swept."""
        storage = disk(old_shards)
        save(storage)
        before = OLD if old_shards else None
        seen: set[frozenset[Any]] = set()
        seen_again: set[frozenset[Any]] = set()
        outcomes = set()
        for point in storage.crash_points():
            for state in distinct(storage.crash_states(point), seen):
                outcome = found(state)
                assert outcome in (before, NEW), state
                outcomes.add(outcome)
                sweep_leftovers(state, "run")
                assert found(state) == outcome, state
                assert set(state.contents()) == expected_files(state), state
                for again in state.crash_points():
                    for twice in distinct(state.crash_states(again, limit=20), seen_again):
                        assert found(twice) == outcome, (state, twice)
                        sweep_leftovers(twice, "run")
                        assert set(twice.contents()) == expected_files(twice), (state, twice)
        assert outcomes == {before, NEW}

    @old_shards
    def test_a_save_that_returned_is_found(self, old_shards: int) -> None:
        """Whatever of the rest is lost."""
        storage = disk(old_shards)
        save(storage)
        assert {found(state) for state in storage.crash_states()} == {NEW}

    @old_shards
    def test_a_save_after_a_power_cut_succeeds(self, old_shards: int) -> None:
        """Without sweeping first; then there is nothing but the new checkpoint."""
        storage = disk(old_shards)
        save(storage)
        seen: set[frozenset[Any]] = set()
        for point in storage.crash_points():
            for state in distinct(storage.crash_states(point, limit=20), seen):
                commit_bundle(state, P, fill(3))
                assert found(state) == 3
                assert {found(after) for after in state.crash_states(limit=20)} == {3}
                sweep_leftovers(state, "run")
                assert set(state.contents()) == expected_files(state), state

    def test_a_small_file_is_old_or_new(self) -> None:
        """And once the call returned, new."""
        storage = FaultyStorage({"run/checkpoint": b"old"})
        commit_file(storage, "run/checkpoint", b"new text")
        outcomes = set()
        for point in storage.crash_points():
            for state in storage.crash_states(point):
                outcomes.add(state.contents()["run/checkpoint"])
                sweep_leftovers(state, "run")
                assert set(state.contents()) == {"run", "run/checkpoint"}
        assert outcomes == {b"old", b"new text"}
        assert {state.contents()["run/checkpoint"] for state in storage.crash_states()} == {b"new text"}


class TestKilledProcess:
    @old_shards
    def test_sweeping_waits_for_the_disk(self, old_shards: int) -> None:
        """A process that died synced nothing more: what another one sweeps then must not rely on it."""
        count = len(operations(save, lambda: disk(old_shards)))
        before = OLD if old_shards else None
        for number in range(count):
            storage = disk(old_shards)
            storage.fail(number, errno.EIO, times=None)
            with warnings.catch_warnings(), contextlib.suppress(StorageError):
                # It may have been cleaning up, which is not an error.
                warnings.simplefilter("ignore", MilepostWarning)
                save(storage)
            die(storage)
            outcome = found(storage)
            assert outcome in (before, NEW)
            started = len(storage.operations)
            sweep_leftovers(storage, "run")
            assert found(storage) == outcome
            assert set(storage.contents()) == expected_files(storage), storage.operations[number]
            for point in storage.crash_points():
                if point >= started:
                    for state in storage.crash_states(point, limit=30):
                        assert found(state) in (before, NEW), (storage.operations[number], state)


class TestRefusal:
    @pytest.mark.parametrize("effect", ["nothing", "half", "all"])
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
    @old_shards
    def test_each_operation_may_fail(self, old_shards: int, code: int, effect: Any) -> None:
        """The save returns or says why not, and what it promised holds, then and after a power cut."""
        names = operations(save, lambda: disk(old_shards))
        before = OLD if old_shards else None
        for number, name in enumerate(names):
            storage = disk(old_shards)
            storage.fail(number, code, effect=effect)
            failure = None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MilepostWarning)
                try:
                    save(storage)
                except StorageError as error:
                    failure = error
            where = storage.operations[number]
            assert found(storage) in (before, NEW), where
            if failure is None:
                assert found(storage) == NEW, where
            else:
                assert failure.errno == code, where
                assert failure.file, where
            promised = (NEW,) if failure is None else (before, NEW)
            for point in (None, number + 1):
                for state in storage.crash_states(point, limit=40):
                    assert found(state) in (promised if point is None else (before, NEW)), (where, state)
            if failure is not None and name not in ("sync_directory", "rename"):
                assert found(storage) == before, where
            if name in ("create", "write", "sync"):
                assert set(storage.contents()) - expected_files(storage) <= _made_by(storage, number), where

    @old_shards
    def test_what_a_failed_save_cleans_up_stays_clean(self, old_shards: int) -> None:
        """Whatever of the cleaning a power cut undoes, sweeping knows what it is."""
        names = operations(save, lambda: disk(old_shards))
        for number in range(len(names)):
            storage = disk(old_shards)
            storage.fail(number, errno.EIO)
            with warnings.catch_warnings(), contextlib.suppress(StorageError):
                warnings.simplefilter("ignore", MilepostWarning)
                save(storage)
            for point in range(number + 1, len(storage.operations) + 1):
                for state in storage.crash_states(point, limit=20):
                    sweep_leftovers(state, "run")
                    assert set(state.contents()) == expected_files(state), (storage.operations[number], state)

    @old_shards
    @pytest.mark.parametrize("dies", [False, True])
    def test_a_failed_sync_of_the_names_can_be_made_up_for(self, old_shards: int, dies: bool) -> None:
        """No data is removed before one has succeeded: the save's own, or that of a sweep after the process died."""
        names = operations(save, lambda: disk(old_shards))
        for number in (n for n, name in enumerate(names) if name == "sync_directory"):
            storage = disk(old_shards)
            storage.fail(number, errno.EIO, times=None if dies else 1)
            with warnings.catch_warnings(), contextlib.suppress(StorageError):
                warnings.simplefilter("ignore", MilepostWarning)
                save(storage)
            die(storage)
            if dies:
                storage.fail(len(storage.operations), errno.EIO, times=None, only=["sync_directory"])
                with contextlib.suppress(StorageError):
                    sweep_leftovers(storage, "run")
                die(storage)
            sweep_leftovers(storage, "run")
            for state in storage.crash_states():
                assert found(state) in (OLD if old_shards else None, NEW), (storage.operations[number], state)

    def test_a_failed_sync_is_not_tried_again(self) -> None:
        """The file is given up, and whatever is tried next is tried with another one."""
        names = operations(save, disk)
        for number, name in enumerate(names):
            if name == "sync":
                storage = disk()
                storage.fail(number, errno.EIO)
                with pytest.raises(StorageError):
                    save(storage)
                synced = [operation.path for operation in storage.operations if operation.name == "sync"]
                assert len(synced) == len(set(synced))

    @pytest.mark.parametrize("effect", ["nothing", "half", "all"])
    def test_each_operation_on_a_small_file_may_fail(self, effect: Any) -> None:
        """The old text stays or the new one comes."""

        def write(storage: FaultyStorage) -> None:
            commit_file(storage, "run/checkpoint", b"new text")

        contents: Mapping[str, bytes] = {"run/checkpoint": b"old"}
        for number, _ in enumerate(operations(write, lambda: FaultyStorage(contents))):
            storage = FaultyStorage(contents)
            storage.fail(number, errno.ENOSPC, effect=effect)
            with contextlib.suppress(StorageError):
                write(storage)
            where = storage.operations[number]
            for state in (storage, *storage.crash_states(limit=40)):
                assert state.contents()["run/checkpoint"] in (b"old", b"new text"), (where, state)


def _made_by(storage: FaultyStorage, number: int) -> set[str]:
    """A file that came to be although its creation was refused: nobody knows of it before it is swept."""
    operation = storage.operations[number]
    return {operation.path} if operation.name == "create" else set()
