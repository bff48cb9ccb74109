"""Tests of milepost.coordination.polling: waits for what can only be looked for."""

import time

from milepost.coordination.polling import poll


class Nothing:
    """Finds nothing, and keeps the times of all looks, in seconds."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.looks: list[float] = []

    def __call__(self) -> None:
        self.looks.append(time.monotonic() - self.start)


def test_what_is_there_is_found_without_a_wait() -> None:
    assert poll(lambda: "here", timeout=0, shortest=1, longest=1) == "here"


def test_without_time_there_is_one_look() -> None:
    look = Nothing()

    assert poll(look, timeout=0, shortest=1, longest=1) is None
    assert len(look.looks) == 1


def test_it_looks_once_more_when_the_time_has_passed() -> None:
    look = Nothing()

    assert poll(look, timeout=0.05, shortest=10, longest=10) is None
    assert len(look.looks) == 2
    assert look.looks[-1] >= 0.05


def test_a_long_wait_takes_few_looks() -> None:
    """Without growing pauses there would be 300 looks in this time."""
    look = Nothing()

    poll(look, timeout=0.3, shortest=0.001, longest=1)

    assert len(look.looks) < 150
