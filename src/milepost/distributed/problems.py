"""Errors as messages from one process to the others. If a save or a restore fails on one process, it fails in the same way on all."""

from __future__ import annotations

from typing import Any, Final

from milepost import errors
from milepost.errors import CoordinationError, MilepostError, RefusedError, StorageError

_FACTS: Final = ("key", "file", "expected", "found", "remedy")


def facts_of(error: BaseException) -> dict[str, Any]:
    """The facts of an error, to be sent to the other processes."""
    kind = next((each.__name__ for each in type(error).__mro__ if getattr(errors, each.__name__, None) is each), "")
    if not isinstance(error, MilepostError) or isinstance(error, RefusedError):
        problem = "it was interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
        return {"kind": "", "problem": problem}
    facts = {fact: str(value) for fact in _FACTS if (value := getattr(error, fact)) is not None}
    is_lost = getattr(error, "is_lost", False)
    return {"kind": kind, "problem": error.problem, "errno": getattr(error, "errno", None), "is_lost": is_lost, **facts}


def error_of(facts: dict[str, Any], who: str | None = None) -> MilepostError:
    """The error that another process is to raise.

    Args:
        facts: What `facts_of` returned, on the process that failed.
        who: That process, in words. With None, the message does not name it.

    Returns:
        An error of the same class where milepost can make one, and else a `CoordinationError`.
    """
    arguments = {fact: facts[fact] for fact in _FACTS if fact in facts}
    if facts["kind"] == CoordinationError.__name__:  # it says itself whom it is about
        error = CoordinationError(facts["problem"], **arguments)
        error.is_lost = facts["is_lost"]
        return error
    problem = facts["problem"] if who is None else f"{who} failed: {facts['problem']}"
    kind: type[MilepostError] = (
        getattr(errors, facts["kind"], CoordinationError) if facts["kind"] else CoordinationError
    )
    if issubclass(kind, StorageError):
        return kind(problem, errno=facts.get("errno"), **arguments)
    return kind(problem, **arguments)
