"""Incremental saves on a disk that forgets and refuses: every checkpoint stays whole, at every point, in every legal way."""

from __future__ import annotations

import contextlib
import errno
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from milepost import Checkpoint, CheckpointManager, CheckpointOptions, MilepostWarning, StorageError, Variable
from milepost.bundle import find_prefixes, index_path, open_bundle
from milepost.series.leftovers import sweep_leftovers
from milepost.testing import FaultyStorage

BASE = np.arange(100.0)
KEY = "v/.ATTRIBUTES/VARIABLE_VALUE"


def live(storage: Any) -> tuple[Any, CheckpointOptions]:
    options = CheckpointOptions(storage=storage, incremental=True, overwrite=True)
    return Checkpoint(base=Variable(BASE), v=Variable(0)), options


def save(storage: Any, numbers: tuple[int, ...]) -> None:
    """Saves ``run/ckpt-N`` with the value N, for each number."""
    checkpoint, options = live(storage)
    for number in numbers:
        checkpoint.save_counter.assign(number - 1)
        checkpoint.v.assign(number)
        checkpoint.save("run/ckpt", options)


def rewrite(storage: Any, numbers: tuple[int, ...]) -> None:
    """Replaces ``run/same``, for each number."""
    checkpoint, options = live(storage)
    for number in numbers:
        checkpoint.v.assign(number)
        checkpoint.write("run/same", options)


def found(storage: Any) -> dict[str, int]:
    """The checkpoints that are visible, each after a look at every byte, with their values."""
    values = {}
    for prefix in find_prefixes(storage, "run"):
        with open_bundle(storage, prefix) as reader:
            reader.verify()
            assert np.array_equal(reader.read("base/.ATTRIBUTES/VARIABLE_VALUE"), BASE)
            values[prefix.removeprefix("run/")] = int(reader.read(KEY))
    return values


def unexpected_files(storage: Any) -> set[str]:
    """Files that belong to no checkpoint that is visible. The next run needs announcements."""
    own = {"run", "run/checkpoint"}
    for prefix in find_prefixes(storage, "run"):
        with open_bundle(storage, prefix) as reader:
            own |= {index_path(prefix), *reader.shard_paths}
    return {path for path in storage.contents() if path not in own and "-index-" not in path}


def distinct(states: Iterator[FaultyStorage], seen: set[Any]) -> Iterator[FaultyStorage]:
    for state in states:
        key = frozenset(state.contents().items())
        if key not in seen:
            seen.add(key)
            yield state


def links_in(storage: FaultyStorage) -> int:
    return sum(operation.name == "link" and operation.failed is None for operation in storage.operations)


@pytest.fixture
def saved() -> FaultyStorage:
    """A disk with one checkpoint, and then two incremental saves."""
    storage = FaultyStorage()
    save(storage, (1,))
    storage.settle()
    save(storage, (2, 3))
    return storage


class TestPowerCut:
    def test_every_checkpoint_is_whole_at_every_point(self, saved: FaultyStorage) -> None:
        """The first stays; the others come one after the other; what is left over is swept; and the next save goes on."""
        assert links_in(saved) == 2
        outcomes = set()
        seen: set[Any] = set()
        for point in saved.crash_points():
            for state in distinct(saved.crash_states(point, limit=60), seen):
                values = found(state)
                assert values == {name: int(name[-1]) for name in values}, state
                outcomes.add(len(values))
                assert list(values) == [f"ckpt-{number + 1}" for number in range(len(values))], state
                sweep_leftovers(state, "run")
                assert found(state) == values, state
                assert unexpected_files(state) == set(), state
                save(state, (4,))
                assert found(state) == values | {"ckpt-4": 4}, state
                assert {len(found(after)) for after in state.crash_states(limit=10)} == {len(values) + 1}
        assert outcomes == {1, 2, 3}

    def test_a_save_that_returned_is_found(self, saved: FaultyStorage) -> None:
        for state in saved.crash_states():
            assert found(state) == {f"ckpt-{number}": number for number in (1, 2, 3)}

    def test_a_replaced_checkpoint_is_old_or_new(self) -> None:
        """Although both share their data."""
        storage = FaultyStorage()
        rewrite(storage, (1,))
        storage.settle()
        rewrite(storage, (2, 3))
        assert links_in(storage) == 2
        outcomes = set()
        seen: set[Any] = set()
        for point in storage.crash_points():
            for state in distinct(storage.crash_states(point, limit=60), seen):
                values = found(state)
                outcomes.add(values["same"])
                sweep_leftovers(state, "run")
                assert found(state) == values, state
                assert unexpected_files(state) == set(), state
        assert outcomes == {1, 2, 3}
        assert all(found(state) == {"same": 3} for state in storage.crash_states())

    def test_a_manager_deletes_what_others_share(self) -> None:
        """At every point of saves and deletions, what is listed is whole."""
        storage = FaultyStorage()
        checkpoint, options = live(storage)
        manager = CheckpointManager(checkpoint, "run", 1, options=options)
        manager.save()
        storage.settle()
        for _ in range(2):
            checkpoint.v.assign_add(1)
            manager.save()
        assert links_in(storage) == 2
        seen: set[Any] = set()
        for point in storage.crash_points():
            for state in distinct(storage.crash_states(point, limit=30), seen):
                values = found(state)
                assert values, state
                again, options = live(state)
                manager = CheckpointManager(again, "run", 1, options=options)
                path = manager.restore_or_initialize()
                assert path == f"run/{max(values)}", state
                manager.save()
                assert len(found(state)) == 1, state
                assert unexpected_files(state) == set(), state

    def test_an_earlier_checkpoint_that_was_copied_and_not_synced_is_made_durable(self, saved: FaultyStorage) -> None:
        """A save that has returned survives, whatever wrote the file that it has taken over."""
        contents = saved.contents()
        storage = FaultyStorage({"run": None})
        for path, data in contents.items():
            if path.startswith("run/ckpt-1") and data is not None:
                with storage.create(path) as file:
                    file.write(0, [data])
        save(storage, (2,))
        assert links_in(storage) == 1
        for state in storage.crash_states():
            with open_bundle(state, "run/ckpt-2") as reader:
                reader.verify()


class TestRefusal:
    @pytest.mark.parametrize("effect", ["nothing", "half", "all"])
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
    @pytest.mark.parametrize(("act", "first"), [(save, "ckpt-1"), (rewrite, "same")])
    def test_each_operation_may_fail(self, act: Any, first: str, code: int, effect: Any) -> None:
        """The save returns or says why not. The earlier checkpoint and a new one that is visible are whole, then and after a power cut."""

        def disk() -> FaultyStorage:
            storage = FaultyStorage()
            act(storage, (1,))
            storage.settle()
            return storage

        plain = disk()
        act(plain, (2,))
        refused = 0
        for number, operation in enumerate(plain.operations):
            storage = disk()
            storage.fail(number, code, effect=effect)
            failure = None
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always", MilepostWarning)
                try:
                    act(storage, (2,))
                except StorageError as error:
                    failure = error
            where = storage.operations[number]
            values = found(storage)
            assert values.keys() <= {first, "ckpt-2"}, where
            assert first in values, where
            if failure is None:
                assert 2 in values.values(), where
            if operation.name == "link":
                refused += 1
                assert failure is None
                assert "writes everything" in str(told[0].message)
            for state in storage.crash_states(limit=30):
                after = found(state)
                assert first in after, (where, state)
                assert failure is not None or 2 in after.values(), (where, state)
                sweep_leftovers(state, "run")
                assert found(state) == after, (where, state)
                assert unexpected_files(state) == set(), (where, state)
        assert refused == 1

    def test_a_process_that_dies_leaves_nothing_that_is_not_swept(self) -> None:
        """At every operation; its files are no longer in use, but nothing is lost yet."""
        plain = FaultyStorage()
        save(plain, (1,))
        plain.settle()
        save(plain, (2,))
        for number in range(len(plain.operations)):
            storage = FaultyStorage()
            save(storage, (1,))
            storage.settle()
            storage.fail(number, errno.EIO, times=None)
            with warnings.catch_warnings(), contextlib.suppress(StorageError):
                warnings.simplefilter("ignore", MilepostWarning)
                save(storage, (2,))
            storage._faults.clear()
            storage._writers.clear()
            values = found(storage)
            assert values["ckpt-1"] == 1
            sweep_leftovers(storage, "run")
            left = {path for path in unexpected_files(storage) if not path.endswith(".tmp")}
            assert left == set(), storage.operations[number]
            assert found(storage) == values
            save(storage, (3,))
            assert found(storage) == values | {"ckpt-3": 3}
