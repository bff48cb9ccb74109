"""The kit for coordinators finds out those that break a promise."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from milepost.coordination import StoreCoordinator
from milepost.testing import coordinator_suite
from milepost.testing.coordinator_suite import CHECKS, check_here
from tests.coordination.test_coordinators import Dictionary


class KeepsTheFirst(Dictionary):
    def set(self, key, value):
        super().set(key, self.values.get(key, value))


class GivesOnce(Dictionary):
    def get(self, key, timeout):
        found = super().get(key, timeout)
        self.delete(key)
        return found


class DeletesNothing(Dictionary):
    def delete(self, key):
        pass


class RefusesToDeleteNothing(Dictionary):
    def delete(self, key):
        del self.values[key]


class DoesNotWait(Dictionary):
    def get(self, key, timeout):
        return super().get(key, 0)


class WaitsTooLong(Dictionary):
    def get(self, key, timeout):
        return super().get(key, timeout + 3)


class ForgetsThePath(Dictionary):
    def set(self, key, value):
        super().set(key.replace(".", "/"), value)

    def get(self, key, timeout):
        return super().get(key.replace(".", "/"), timeout)


class CutsShort(Dictionary):
    def set(self, key, value):
        super().set(key, value[: 1 << 19])


class EndsAtZero(Dictionary):
    def set(self, key, value):
        super().set(key, value.partition(b"\0")[0] if len(value) < 300 else value)


class GivesText(Dictionary):
    def get(self, key, timeout):
        found = super().get(key, timeout)
        return bytearray(found) if found is not None else None


class OneAtATime(Dictionary):
    """A wait keeps all others out, as a connection that is shared would."""

    def __init__(self):
        super().__init__()
        self.turn = threading.Lock()

    def set(self, key, value):
        with self.turn:
            super().set(key, value)

    def get(self, key, timeout):
        with self.turn:
            return super().get(key, timeout)


FAULTS = {
    KeepsTheFirst: "a_later_post_takes_the_place",
    GivesOnce: "a_message_stays",
    DeletesNothing: "what_is_cleared_is_gone",
    RefusesToDeleteNothing: "clearing_what_is_not_there",
    DoesNotWait: "a_wait_ends_in_time",
    WaitsTooLong: "a_wait_ends_in_time",
    ForgetsThePath: "topics_are_apart",
    CutsShort: "large_messages",
    EndsAtZero: "any_bytes",
    GivesText: "any_bytes",
    OneAtATime: "threads_do_not_wait_for_each_other",
}


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    """A check that waits in vain gives up soon."""
    monkeypatch.setattr(coordinator_suite, "_PATIENCE", 1.5)
    monkeypatch.setattr(coordinator_suite, "_LATE", 1.0)


@pytest.mark.parametrize(("store", "name"), FAULTS.items(), ids=lambda each: getattr(each, "__name__", None))
def test_a_fault_is_found(store, name):
    shared = store()
    with ThreadPoolExecutor(2) as threads:
        ends = [
            threads.submit(CHECKS[name], StoreCoordinator(shared, rank, 2, "a dictionary"), name) for rank in range(2)
        ]
    assert any(end.exception() is not None for end in ends)


class Stamped(StoreCoordinator):
    """Begins every message with its time."""

    def post(self, topic, message):
        super().post(topic, b"%f " % time.time() + message)


def test_real_processes_learn_which_checks_have_failed():
    """Each process gets the names of the checks that have failed on it, with what they have found."""
    shared = Dictionary()
    with ThreadPoolExecutor(2) as threads:
        ends = [threads.submit(check_here, Stamped(shared, rank, 2, "a dictionary")) for rank in range(2)]
    for end in ends:
        failed = end.result()
        assert "posts_of_process_0_reach_all" in failed
        assert "AssertionError" in failed["posts_of_process_0_reach_all"]
        assert "each_process_has_a_number" not in failed
