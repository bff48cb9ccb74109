"""Agreement of several processes on whether a save is due, on whether one of them has received SIGTERM, and on what has failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from milepost.distributed.find import rounds_of
from milepost.distributed.problems import error_of, facts_of
from milepost.distributed.rounds import Message
from milepost.engine.options import CheckpointOptions
from milepost.errors import MilepostError


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


def first_error(
    options: CheckpointOptions, what: str, look: Callable[[], MilepostError | None]
) -> MilepostError | None:
    """An error that one process has found, on all processes; None if no process has found one.

    Args:
        options: As for `milepost.distributed.find.rounds_of`.
        what: What is looked for, in words; all processes must look for the same.
        look: Returns what this process has found. It may take any time.

    Raises:
        CoordinationError: A process did not answer, or looked for something else.
        MilepostError: A process has raised an error. It has the same class on all processes.
    """
    rounds = rounds_of(options, what)
    if rounds is None:
        return look()
    try:
        with rounds.working(time.monotonic):
            error = look()
        own = None if error is None else {"error": facts_of(error), "rank": rounds.rank}
        decision = rounds.exchange(
            Message({"found": own}),
            lambda reports: Message({"found": next(filter(None, (each.facts["found"] for each in reports)), None)}),
        )
    except BaseException as failed:
        rounds.fail(failed)
        raise
    rounds.end()
    found = decision.facts["found"]
    if error is not None or found is None:
        return error
    return error_of(found["error"], f"process {found['rank']} of {rounds.size}")
