"""The commit in a store, killed at every request, without answers, and beside others that take it for dead."""

import contextlib
import errno
import itertools

import numpy as np
import pytest

from milepost.bundle import BundleWriter, index_path, open_bundle
from milepost.errors import CheckpointNotFoundError, StorageError
from milepost.series.commit import BundleCommit
from milepost.series.leftovers import sweep_leftovers
from milepost.testing.faulty_bucket import FaultyBucket, Killed
from tests.bundles import commit_bundle
from tests.stores import storage_of

P = "run/ckpt-1"
OLD, NEW, OTHER = 1, 2, 3
FOREIGN = {"run/notes": b"mine", "run/ckpt-2.data-00000-of-00001": b"a copy under way"}


def fill(number):
    def add(writer: BundleWriter) -> None:
        writer.add("v0", np.full(50, number, np.int32))
        writer.add("v1", np.full(5, number, np.int32), shard=1)

    return add


def store(bucket, lease=60.0):
    """A storage of one process. With a lease below zero, every other process counts as dead."""
    return storage_of(bucket, lease=lease)


def save(bucket, number, lease=60.0):
    commit_bundle(store(bucket, lease), P, fill(number), shards=2)


def bucket_with(old):
    bucket = FaultyBucket()
    for key, data in FOREIGN.items():
        bucket.put(key, data)
    if old:
        save(bucket, OLD)
    bucket.requests.clear()
    return bucket


def found(bucket):
    """Which checkpoint is visible, after a look at every byte; None if there is none."""
    storage = store(bucket)
    try:
        with open_bundle(storage, P) as reader:
            reader.verify()
            return int(reader.read("v0")[0])
    except CheckpointNotFoundError:
        assert not storage.is_file(index_path(P))
        return None


def swept(bucket):
    """What is visible after everything that dead processes have left was removed. Nothing else is there then."""
    sweep_leftovers(store(bucket, lease=-1.0), "run")
    number, names = found(bucket), {*bucket.objects} - {*FOREIGN}
    if number is None:
        assert names == set()
        return None
    with open_bundle(store(bucket), P) as reader:
        assert names == {index_path(P), *reader.shard_paths}
    assert {*FOREIGN} <= {*bucket.objects}
    return number


def requests_of(old):
    bucket = bucket_with(old)
    save(bucket, NEW)
    return list(bucket.requests)


@pytest.mark.parametrize("old", [False, True])
class TestKilled:
    @pytest.mark.parametrize("applied", [False, True])
    def test_a_save_that_is_killed_leaves_the_old_checkpoint_or_the_new(self, old, applied):
        requests, seen = requests_of(old), set()
        for number in range(len(requests)):
            bucket = bucket_with(old)
            bucket.kill_at(number, applied=applied)
            with pytest.raises(Killed):
                save(bucket, NEW)
            left = bucket.copy()
            visible = found(left)
            assert visible in (OLD if old else None, NEW)
            assert swept(left) == visible
            seen.add(visible)
        assert seen == {OLD if old else None, NEW}

    def test_a_sweep_that_is_killed_is_completed_by_the_next(self, old):
        for number in range(len(requests_of(old))):
            bucket = bucket_with(old)
            bucket.kill_at(number)
            with pytest.raises(Killed):
                save(bucket, NEW)
            visible, at = found(bucket.copy()), 0
            while True:
                left = bucket.copy()
                left.kill_at(at)
                with contextlib.suppress(Killed):
                    sweep_leftovers(store(left, lease=-1.0), "run")
                    break
                assert swept(left.copy()) == visible
                at += 1

    def test_the_next_save_succeeds(self, old):
        for number in range(len(requests_of(old))):
            bucket = bucket_with(old)
            bucket.kill_at(number, applied=True)
            with pytest.raises(Killed):
                save(bucket, NEW)
            left = bucket.copy()
            save(left, OTHER, lease=-1.0)
            assert swept(left) == OTHER


@pytest.mark.parametrize("old", [False, True])
class TestNoAnswer:
    @pytest.mark.parametrize("how", ["lose", "refuse"])
    def test_a_save_goes_on_after_a_request_without_an_answer(self, old, how):
        for number in range(len(requests_of(old))):
            bucket = bucket_with(old)
            getattr(bucket, how)(number)
            save(bucket, NEW)
            bucket.before = bucket.after = lambda _: None
            assert found(bucket) == NEW
            assert swept(bucket) == NEW

    def test_a_store_that_stops_to_answer_fails_the_save_and_keeps_what_was_there(self, old):
        for number in range(0, len(requests_of(old)), 3):
            bucket = bucket_with(old)

            def stop(at, number=number):
                if at >= number:
                    raise TimeoutError(errno.ETIMEDOUT, "timed out")

            bucket.before = stop
            try:
                save(bucket, NEW)
                failed = False
            except StorageError:
                failed = True
            left = bucket.copy()
            visible = found(left)
            assert visible in ((OLD if old else None, NEW) if failed else (NEW,))
            assert swept(left) == visible


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("lease", [60.0, 0.0])
class TestTakenForDead:
    def beside(self, old, lease, number, other):
        """Saves, and lets another process act before a request. Returns the bucket, and whether the save has succeeded."""
        bucket = bucket_with(old)

        def act(at):
            if at == number:
                bucket.before = lambda _: None
                other(bucket)

        bucket.before = act
        try:
            save(bucket, NEW, lease)
        except StorageError:
            return bucket, False
        return bucket, True

    def test_a_save_that_is_swept_is_whole_or_fails(self, old, lease):
        outcomes = set()
        for number in range(len(requests_of(old))):
            bucket, succeeded = self.beside(
                old, lease, number, lambda bucket: sweep_leftovers(store(bucket, -1.0), "run")
            )
            assert found(bucket) == (NEW if succeeded else OLD if old else None)
            assert swept(bucket) == (NEW if succeeded else OLD if old else None)
            outcomes.add(succeeded)
        assert outcomes == {True, False}

    def test_a_sweep_that_stops_anywhere_beside_it(self, old, lease):
        steps = len(requests_of(old))
        for number in range(steps):
            for at in range(1, 40, 2):
                ended = []

                def sweep(bucket, at=at, ended=ended):
                    first = len(bucket.requests)

                    def stop(position):
                        if position - first >= at:
                            raise Killed

                    bucket.before = stop
                    with contextlib.suppress(Killed):
                        sweep_leftovers(store(bucket, -1.0), "run")
                        ended.append(True)
                    bucket.before = lambda _: None

                bucket, succeeded = self.beside(old, lease, number, sweep)
                assert found(bucket) == (NEW if succeeded else OLD if old else None)
                assert swept(bucket) == (NEW if succeeded else OLD if old else None)
                if ended:
                    break

    def test_of_two_saves_each_that_succeeds_is_whole_when_it_ends(self, old, lease):
        for number in range(len(requests_of(old))):
            bucket, succeeded = self.beside(old, lease, number, lambda bucket: save(bucket, OTHER, -1.0))
            visible = found(bucket)
            assert visible == (NEW if succeeded and visible != OTHER else OTHER)
            assert swept(bucket) == visible


@pytest.mark.parametrize("old", [False, True])
def test_a_save_that_continues_within_the_sweep_of_another(old):
    """The save writes its index after it was taken for dead, perhaps before it was decided what becomes of it."""
    outcomes = set()
    for number in itertools.count():
        bucket, outcome = bucket_with(old), []
        with contextlib.suppress(StorageError), BundleCommit(store(bucket), P, 2) as commit:
            writer = commit.writer()
            fill(NEW)(writer)
            for shard, temporary in enumerate(commit.data):
                writer.write_shard(shard, commit.create(temporary))
            commit.sync_data()
            index, start = writer.index(), len(bucket.requests)

            def finish(at, first=start + number, commit=commit, index=index, outcome=outcome, bucket=bucket):
                if at == first:
                    bucket.before = lambda _: None
                    try:
                        commit.publish(index)
                        outcome.append(True)
                    except StorageError:
                        outcome.append(False)

            bucket.before = finish
            sweep_leftovers(store(bucket, -1.0), "run")
            bucket.before = lambda _: None
        if not outcome:
            break
        outcomes.update(outcome)
        expected = NEW if outcome == [True] else OLD if old else None
        assert found(bucket) == expected, number
        assert swept(bucket) == expected, number
    assert outcomes == {True, False}
