"""Finds the processes that take part in a save or a restore."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from milepost.adapters.coordinators import found_coordinator
from milepost.coordination import Coordinator
from milepost.engine.options import CheckpointOptions
from milepost.errors import importing
from milepost.storage import MemoryStorage

if TYPE_CHECKING:
    from milepost.distributed.rounds import Rounds

DecisionT = TypeVar("DecisionT")


def rounds_of(options: CheckpointOptions, what: str) -> Rounds | None:
    """Begins an operation of all processes.

    Args:
        options: Say whether this process is alone, or which coordinator it has.
        what: The operation in words. All processes must do the same.

    Returns:
        The rounds of the operation, or None if this process is alone. Files in memory are seen by no other process.

    Raises:
        AdapterError: A library that milepost cannot use in the installed version has connected the processes.
        CoordinationError: This is the first operation, and a process has not come.
    """
    coordinator = _coordinator(options)
    if coordinator is None:
        return None
    with importing():
        from milepost.distributed.rounds import Rounds, session_of  # a process that is alone needs none

    rounds = Rounds(session_of(coordinator), what, options.process_timeout)
    rounds.meet()
    return rounds


def first_decides(options: CheckpointOptions, what: str, decide: Callable[[], DecisionT]) -> DecisionT:
    """Lets process 0 decide for all processes. A single process decides for itself.

    Args:
        options: As for `rounds_of`.
        what: The decision in words.
        decide: Called on process 0. It returns plain data, as JSON takes it.

    Returns:
        The decision, on all processes.

    Raises:
        MilepostError: ``decide`` has failed. The error has the same class on all processes.
        CoordinationError: A process did not answer.
    """
    rounds = rounds_of(options, what)
    if rounds is None:
        return decide()
    with importing():
        from milepost.distributed.rounds import Message  # as above

    try:
        decision = rounds.exchange(Message({}), lambda _: Message({"decision": decide()}))
    except BaseException as error:
        rounds.fail(error)
        raise
    rounds.end()
    chosen: DecisionT = decision.facts["decision"]
    return chosen


def is_alone(options: CheckpointOptions) -> bool:
    """Whether this process saves and restores without others. Errors are those of `is_first`."""
    return _coordinator(options) is None


def is_first(options: CheckpointOptions) -> bool:
    """Whether this process is alone, or process 0 of several."""
    coordinator = _coordinator(options)
    return coordinator is None or coordinator.rank == 0


def _coordinator(options: CheckpointOptions) -> Coordinator | None:
    if options.process_local or isinstance(options.storage, MemoryStorage):
        return None
    coordinator = options.coordinator or found_coordinator()
    return None if coordinator is None or coordinator.size < 2 else coordinator
