"""Tests for a `Coordinator`, for pytest and for real processes.

Each check is a function that every process calls. `CoordinatorSuite` runs it in one process, with a thread for each coordinator:
derive a class, and add a fixture ``coordinators`` that returns those of one program, by rank; three are best::

    class TestMyCoordinator(CoordinatorSuite):
        @pytest.fixture
        def coordinators(self, tmp_path):
            return [MyCoordinator(tmp_path, rank, 3) for rank in range(3)]

Where a process can have only its own coordinator, as with MPI, start several processes, and let each call `check_here`.
"""

from __future__ import annotations

import os
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from milepost.coordination import Coordinator

_PATIENCE: Final = 60.0
"""Seconds in which a message must arrive. It is long, so that a busy machine fails no test."""
_BRIEF: Final = 0.3
_LATE: Final = 20.0
"""How many seconds late a wait may return on a busy machine."""
_MANY: Final = 200
_LARGE: Final = 8 << 20

Check = Callable[[Coordinator, str], None]
"""Takes the coordinator of this process, and a name with which the topics of the check begin."""


def _arrived(coordinator: Coordinator, topic: str, rank: int, message: bytes | None) -> None:
    """Waits until a message, or its removal, has arrived here."""
    end, pause = time.monotonic() + _PATIENCE, 0.001
    while True:
        received = coordinator.wait(topic, rank, 0 if message is None else 0.5)
        if received == message:
            return
        assert time.monotonic() < end, f"process {coordinator.rank} has {_short(received)} instead of {_short(message)}"
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


def _short(message: bytes | None) -> str:
    return repr(message) if message is None or len(message) < 50 else f"{len(message)} bytes"


def _meet(coordinator: Coordinator, topic: str) -> None:
    """Returns when all processes have called it."""
    if coordinator.rank:
        coordinator.post(topic, b"here")
    else:
        for rank in range(1, coordinator.size):
            _arrived(coordinator, topic, rank, b"here")
        coordinator.post(topic, b"all here")
    _arrived(coordinator, topic, 0, b"all here")


def _others(coordinator: Coordinator) -> range:
    return range(1, coordinator.size)


def each_process_has_a_number(coordinator: Coordinator, topic: str) -> None:
    """Ranks count from 0, and the library has a name."""
    assert 0 <= coordinator.rank < coordinator.size
    assert isinstance(coordinator.library, str)
    assert coordinator.library


def it_can_be_told_from_others(coordinator: Coordinator, topic: str) -> None:
    """A coordinator has a hash, and can be referred to weakly."""
    assert weakref.WeakKeyDictionary({coordinator: 1})[coordinator] == 1


def posts_of_process_0_reach_all(coordinator: Coordinator, topic: str) -> None:
    """Each process gets what process 0 posts, itself included."""
    if coordinator.rank == 0:
        coordinator.post(topic, b"from 0")
    assert coordinator.wait(topic, 0, _PATIENCE) == b"from 0"


def posts_of_others_reach_process_0(coordinator: Coordinator, topic: str) -> None:
    """Process 0 gets what each of the others posts under one topic, and tells them apart."""
    coordinator.post(topic, b"from %d" % coordinator.rank)
    if coordinator.rank == 0:
        for rank in reversed(range(coordinator.size)):
            assert coordinator.wait(topic, rank, _PATIENCE) == b"from %d" % rank
    else:
        assert coordinator.wait(topic, 0, _PATIENCE) == b"from 0"


def topics_are_apart(coordinator: Coordinator, topic: str) -> None:
    """Topics that differ in one character are different, also long ones."""
    longest = topic + "/" + "x" * (200 - len(topic) - 2)
    topics = [f"{topic}{end}" for end in ("", "/a", ".a", "-a", "_a", "/a/a", "a", "0", "1", "10")]
    topics += [longest, f"{longest}x"]
    for number, variant in enumerate(topics):
        coordinator.post(variant, b"%d" % number)
    for number, variant in enumerate(topics):
        assert coordinator.wait(variant, 0, _PATIENCE) == b"%d" % number, variant
        if coordinator.rank == 0:
            for rank in _others(coordinator):
                assert coordinator.wait(variant, rank, _PATIENCE) == b"%d" % number, variant


def a_message_stays(coordinator: Coordinator, topic: str) -> None:
    """Every wait returns a message again."""
    coordinator.post(topic, b"stays")
    for timeout in (_PATIENCE, _PATIENCE, 0):
        assert coordinator.wait(topic, 0, timeout) == b"stays"
        if coordinator.rank == 0:
            assert coordinator.wait(topic, coordinator.size - 1, _PATIENCE) == b"stays"


def a_later_post_takes_the_place(coordinator: Coordinator, topic: str) -> None:
    """Of several posts under one topic the last one is delivered, whether the earlier ones were seen or not."""
    coordinator.post(f"{topic}/unseen", b"a longer message, which is replaced")
    coordinator.post(f"{topic}/unseen", b"last")
    coordinator.post(topic, b"first")
    _arrived(coordinator, topic, 0, b"first")
    _meet(coordinator, f"{topic}/seen")
    coordinator.post(topic, b"last")
    for rank in range(coordinator.size) if coordinator.rank == 0 else [0]:
        _arrived(coordinator, topic, rank, b"last")
        _arrived(coordinator, f"{topic}/unseen", rank, b"last")


def what_is_cleared_is_gone(coordinator: Coordinator, topic: str) -> None:
    """A process removes its own message, and not those of others; it can post again."""
    coordinator.post(topic, b"here")
    for rank in range(coordinator.size) if coordinator.rank == 0 else [0]:
        _arrived(coordinator, topic, rank, b"here")
    _meet(coordinator, f"{topic}/posted")
    if coordinator.rank:
        coordinator.clear(topic)
    for rank in _others(coordinator) if coordinator.rank == 0 else ():
        _arrived(coordinator, topic, rank, None)
    _meet(coordinator, f"{topic}/cleared")
    assert coordinator.wait(topic, 0, 0) == b"here"
    _meet(coordinator, f"{topic}/looked")
    if coordinator.rank == 0:
        coordinator.clear(topic)
    _arrived(coordinator, topic, 0, None)
    _meet(coordinator, f"{topic}/cleared_too")
    coordinator.post(topic, b"again")
    for rank in range(coordinator.size) if coordinator.rank == 0 else [0]:
        _arrived(coordinator, topic, rank, b"again")


def clearing_what_is_not_there(coordinator: Coordinator, topic: str) -> None:
    """Clearing what was never posted, or is cleared already, does nothing."""
    coordinator.clear(topic)
    coordinator.post(topic, b"x")
    coordinator.clear(topic)
    coordinator.clear(topic)
    if coordinator.rank == 0:
        assert coordinator.wait(topic, 0, 0) is None


def a_wait_ends_in_time(coordinator: Coordinator, topic: str) -> None:
    """If there is no message, a wait returns None when its time has passed. A wait of 0 seconds looks once."""
    for timeout in (0, _BRIEF, 2 * _BRIEF):
        begun = time.monotonic()
        assert coordinator.wait(topic, 0, timeout) is None
        taken = time.monotonic() - begun
        assert 0.9 * timeout <= taken < timeout + _LATE, f"{taken:.2f} seconds instead of {timeout}"


def a_wait_ends_when_the_message_comes(coordinator: Coordinator, topic: str) -> None:
    """Posting a message ends a wait for it."""
    _meet(coordinator, f"{topic}/ready")
    begun = time.monotonic()
    if coordinator.rank == coordinator.size - 1:
        time.sleep(_BRIEF)
        coordinator.post(topic, b"at last")
    elif coordinator.rank == 0:
        assert coordinator.wait(topic, coordinator.size - 1, 10 * _PATIENCE) == b"at last"
        assert time.monotonic() - begun < _PATIENCE


def threads_do_not_wait_for_each_other(coordinator: Coordinator, topic: str) -> None:
    """While one thread waits, others post, wait and clear."""
    _meet(coordinator, f"{topic}/ready")
    with ThreadPoolExecutor(4) as threads:
        if coordinator.rank == 0:
            waiting = [threads.submit(coordinator.wait, f"{topic}/{n}", 1, 2 * _PATIENCE) for n in range(3)]
            threads.submit(coordinator.clear, f"{topic}/nothing").result(_PATIENCE)
            for number in range(3):
                begun = time.monotonic()
                coordinator.post(f"{topic}/go", b"%d" % number)
                assert waiting[number].result(2 * _PATIENCE) == b"answer %d" % number
                assert time.monotonic() - begun < _PATIENCE, "a post waited for the wait of another thread"
        elif coordinator.rank == 1:
            for number in range(3):
                _arrived(coordinator, f"{topic}/go", 0, b"%d" % number)
                threads.submit(coordinator.post, f"{topic}/{number}", b"answer %d" % number).result(_PATIENCE)
    _meet(coordinator, f"{topic}/done")


def many_topics(coordinator: Coordinator, topic: str) -> None:
    """Some hundred topics are in use at a time, from several threads, and all can be cleared."""
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: coordinator.post(f"{topic}/{n}", b"%d of %d" % (n, coordinator.rank)), range(_MANY)))
    for rank in range(coordinator.size) if coordinator.rank == 0 else [0]:
        for number in range(_MANY):
            assert coordinator.wait(f"{topic}/{number}", rank, _PATIENCE) == b"%d of %d" % (number, rank)
    _meet(coordinator, f"{topic}/seen")
    for number in range(_MANY):
        coordinator.clear(f"{topic}/{number}")


def large_messages(coordinator: Coordinator, topic: str) -> None:
    """A message of 8 MiB arrives in both directions. A post does not wait for a reader."""
    message = bytes([coordinator.rank]) + os.urandom(1 << 16) * (_LARGE >> 16)
    coordinator.post(topic, message)
    coordinator.post(f"{topic}/end", message[-100:])
    for rank in range(coordinator.size) if coordinator.rank == 0 else [0]:
        received = coordinator.wait(topic, rank, _PATIENCE)
        assert received is not None
        assert (len(received), received[0]) == (_LARGE + 1, rank)
        assert coordinator.wait(f"{topic}/end", rank, _PATIENCE) == received[-100:]
    _meet(coordinator, f"{topic}/seen")
    coordinator.clear(topic)


def any_bytes(coordinator: Coordinator, topic: str) -> None:
    """Messages are bytes of any values, and may be empty."""
    messages = [b"", b"\0", b"\0\0text\0", bytes(range(256)), b"\n", b" text ", "ü".encode(), b"\xff\xfe", b"None"]
    for number, message in enumerate(messages):
        coordinator.post(f"{topic}/{number}", message)
    for rank in range(coordinator.size) if coordinator.rank == 0 else [0]:
        for number, message in enumerate(messages):
            received = coordinator.wait(f"{topic}/{number}", rank, _PATIENCE)
            assert received == message
            assert isinstance(received, bytes)


CHECKS: Final[Mapping[str, Check]] = {
    check.__name__: check
    for check in (
        each_process_has_a_number,
        it_can_be_told_from_others,
        posts_of_process_0_reach_all,
        posts_of_others_reach_process_0,
        topics_are_apart,
        a_message_stays,
        a_later_post_takes_the_place,
        what_is_cleared_is_gone,
        clearing_what_is_not_there,
        a_wait_ends_in_time,
        a_wait_ends_when_the_message_comes,
        threads_do_not_wait_for_each_other,
        many_topics,
        large_messages,
        any_bytes,
    )
}
"""All checks, by name."""


def check_here(coordinator: Coordinator, name: str = "check") -> dict[str, str]:
    """Runs all checks in this process. All processes of the program must call it.

    Args:
        coordinator: The coordinator of this process.
        name: The beginning of all topics. Each call with the same coordinator needs another name.

    Returns:
        The traceback of each check that failed, by the name of the check.
    """
    failed = {}
    for check, function in CHECKS.items():
        try:
            function(coordinator, f"{name}/{check}")
        except Exception:  # every error is a failure of the check
            failed[check] = traceback.format_exc()
    return failed


class CoordinatorSuite:
    """Tests of a coordinator; see `milepost.testing.coordinator_suite`. Each test checks one fact."""

    @pytest.fixture
    def coordinators(self) -> Sequence[Coordinator]:
        """The coordinators of one program, by rank. They are new for each test."""
        raise NotImplementedError("add a fixture `coordinators` to the class of the tests")

    @pytest.mark.parametrize("name", CHECKS)
    def test_coordinator(self, coordinators: Sequence[Coordinator], name: str) -> None:
        """Runs the check of this name on all processes."""
        assert [each.rank for each in coordinators] == list(range(len(coordinators)))
        assert all(each.size == len(coordinators) for each in coordinators)
        with ThreadPoolExecutor(len(coordinators)) as threads:
            ends = [threads.submit(CHECKS[name], each, name) for each in coordinators]
        for end in ends:
            end.result()
