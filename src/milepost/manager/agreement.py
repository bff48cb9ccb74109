"""Agreement of several processes on whether a save is due, and on whether one of them has received SIGTERM."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from milepost.distributed.find import rounds_of
from milepost.distributed.rounds import Message
from milepost.engine.options import CheckpointOptions


class Agreed(NamedTuple):
    """The facts about a step on which all processes agree.

    Attributes:
        preempted: Whether one of the processes has received SIGTERM.
        by_clock: Whether a save is due by the clock of process 0.
    """

    preempted: bool
    by_clock: bool


def agree(options: CheckpointOptions, what: str, preempted: bool, by_clock: Callable[[], bool]) -> Agreed:
    """Returns the same facts on all processes. A single process needs no messages.

    Args:
        options: As for `milepost.distributed.find.rounds_of`.
        what: What is asked, in words; all processes must ask the same.
        preempted: Whether this process has received SIGTERM.
        by_clock: Whether a save is due by the clock; called on process 0.

    Raises:
        CoordinationError: A process did not answer, or asked something else.
    """
    rounds = rounds_of(options, what)
    if rounds is None:
        return Agreed(preempted, by_clock())
    try:
        decision = rounds.exchange(
            Message({"preempted": preempted}),
            lambda reports: Message(
                {"agreed": [any(report.facts["preempted"] for report in reports), by_clock()]},
            ),
        )
    except BaseException as error:
        rounds.fail(error)
        raise
    rounds.end()
    return Agreed(*decision.facts["agreed"])
