"""The coordinators that need no library pass the tests of every coordinator."""

import threading

import pytest

from milepost.coordination import FileCoordinator, StoreCoordinator
from milepost.errors import StorageError, UnsupportedError
from milepost.testing.coordinator_suite import CoordinatorSuite
from tests.counting import lines_run

SIZE = 3


class Dictionary:
    """A key-value store in memory."""

    def __init__(self):
        self.values = {}
        self.changed = threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key, timeout):
        with self.changed:
            self.changed.wait_for(lambda: key in self.values, timeout)
            return self.values.get(key)

    def delete(self, key):
        with self.changed:
            self.values.pop(key, None)


class TestFileCoordinator(CoordinatorSuite):
    @pytest.fixture
    def coordinators(self, tmp_path):
        return [FileCoordinator(tmp_path / "messages", rank, SIZE) for rank in range(SIZE)]


class TestFileCoordinatorOfTwo(CoordinatorSuite):
    @pytest.fixture
    def coordinators(self, tmp_path):
        return [FileCoordinator(str(tmp_path), rank, 2) for rank in range(2)]


class TestStoreCoordinator(CoordinatorSuite):
    @pytest.fixture
    def coordinators(self):
        store = Dictionary()
        return [StoreCoordinator(store, rank, SIZE, "a dictionary") for rank in range(SIZE)]


def test_a_file_is_read_when_it_is_whole(tmp_path):
    """What is being written is not a message yet."""
    first, second = (FileCoordinator(tmp_path, rank, 2) for rank in range(2))
    (tmp_path / "topic.1.message.part").write_bytes(b"half a mess")
    assert first.wait("topic", 1, 0) is None
    second.post("topic", b"a whole message")
    assert first.wait("topic", 1, 0) == b"a whole message"


def test_a_wait_for_a_file_sleeps(tmp_path):
    """A process that waits leaves the processor to others."""
    coordinator = FileCoordinator(tmp_path, 0, 2)
    assert lines_run(lambda: coordinator.wait("topic", 1, 0.5)) < 5_000


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0), ("0", 2), (0, 1.5), (True, 2)])
def test_a_rank_that_cannot_be_is_refused(tmp_path, rank, size):
    with pytest.raises(UnsupportedError, match=r"key: (rank|size)"):
        FileCoordinator(tmp_path / "messages", rank, size)
    assert not (tmp_path / "messages").exists()


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=str(tmp_path / "file/messages")):
        FileCoordinator(tmp_path / "file/messages", 0, 2)
