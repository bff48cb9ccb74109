"""What became of a set-up: the run is killed again and again, resumed each time, and compared with an undisturbed run."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.zoo_fit.forked import forked
from tests.zoo_trainers.trace import Trace, read

Run = Callable[[Trace, "str | None", "dict[str, Any]"], None]
"""Trains: with notes, in a directory (None: without milepost), and saved as the options say."""
ERROR = "error"


@dataclass(frozen=True)
class Row:
    """A set-up, and what the page says of it if it is inexact."""

    run: Run
    said: str = ""


@dataclass(frozen=True)
class Plan:
    """When a run is saved, and the moment at which each of its processes is killed, one after the other."""

    options: tuple[tuple[str, int], ...]
    kills: tuple[tuple[str, int], ...]


_EACH_BATCH = (("every_steps", 1),)
FEW = (Plan(_EACH_BATCH, (("batch", 3), ("epoch's end", 1), ("after a save", 2))),)
BRIEF = (
    Plan(
        _EACH_BATCH,
        (
            ("batch", 3),
            ("SIGTERM", 2),
            ("epoch's start", 1),
            ("epoch's end", 1),
            ("after a save", 2),
            ("end of a validation", 1),
            ("validation", 2),
            ("batch", 2),
            ("end of a batch", 2),
            ("epoch's start", 2),
            ("SIGTERM", 1),
            ("batch", 3),
            ("run's end", 1),
        ),
    ),
    Plan((), (("batch", 7), ("epoch's end", 1), ("after a save", 1))),
)
WHOLE = (
    Plan(_EACH_BATCH, (("batch", 2),) * 20),
    Plan(_EACH_BATCH, (("SIGTERM", 2),) * 10),
    Plan(_EACH_BATCH, (("end of a batch", 3),) * 8),
    Plan(_EACH_BATCH, (("validation", 1), ("end of a validation", 1), ("epoch's end", 1), ("epoch's start", 1)) * 3),
    Plan(_EACH_BATCH, (("after a save", 5), ("after a save", 3), ("after a save", 4))),
    Plan(_EACH_BATCH, (("run's end", 1), ("run's end", 1))),
    Plan((("every_steps", 3),), (("batch", 5), ("epoch's end", 1), ("batch", 4), ("SIGTERM", 1))),
    Plan((), (("batch", 7), ("epoch's end", 1), ("after a save", 1), ("batch", 3), ("SIGTERM", 2))),
    *BRIEF,
)


def verdict(row: Row, plans: tuple[Plan, ...] = BRIEF) -> dict[str, Any]:
    """How the resumed runs of a set-up compare.

    Args:
        row: The set-up.
        plans: When its runs are saved and killed.

    Returns:
        The ``verdict``: ``"equal"``, ``"refused"``, ``"inexact, said"``, ``"DIFFERS"`` or ``"—"``; how many resumes were
        ``tried``; and ``why``.
    """
    with tempfile.TemporaryDirectory() as directory:
        whole = _process(row.run, Path(directory, "whole"), None, {}, None)
        if whole.get("why"):
            return {"verdict": "—", "tried": 0, "why": whole["why"]}
        tried, failures = 0, []
        reached = {"after a save", "SIGTERM", *whole["reached"]}
        for number, plan in enumerate([Plan(_EACH_BATCH, ()), *plans]):
            plan = replace(plan, kills=tuple(kill for kill in plan.kills if kill[0] in reached))
            resumes, difference = _compare(row.run, Path(directory, f"{number}"), plan, whole["notes"])
            tried += resumes
            if difference is not None and difference[0]:
                return {"verdict": "refused", "tried": tried, "why": difference[1]}
            failures += [] if difference is None else [difference[1]]
    if failures:
        return {"verdict": "inexact, said" if row.said else "DIFFERS", "tried": tried, "why": row.said or failures[0]}
    return {"verdict": "equal", "tried": tried}


def _compare(run: Run, directory: Path, plan: Plan, whole: dict[str, str]) -> tuple[int, tuple[bool, str] | None]:
    """How many resumes there were, and whether the run was refused and what differs."""
    missing = dict(whole)
    history = "saved at " + (", ".join(f"{name}={value}" for name, value in plan.options) or "the ends of epochs")
    for number, kill in enumerate([*plan.kills, None]):
        result = _process(run, directory, "run", dict(plan.options), kill, number)
        for key, value in result["notes"].items():
            if whole.get(key) != value:
                return number, (False, f"{history}: {key} is {_short(value)} and not {_short(whole.get(key))}")
            missing.pop(key, None)
        if result.get("why"):
            return number, (result.get("refused", False), result["why"])
        if kill is not None and result["ended"] and kill[0] != "SIGTERM":
            break  # it came to its end before
        history += f", killed at {kill[0]} {kill[1]}" if kill else ""
    return number, (False, f"{history}: {next(iter(missing))} is missing") if missing else None


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) < 120 else f"{text[:120]} ..."


def _process(
    run: Run, directory: Path, name: str | None, options: dict[str, Any], kill: tuple[str, int] | None, number: int = 0
) -> dict[str, Any]:
    """Runs a process, and returns its notes, whether it ended by itself, and why it ended otherwise, except by the kill."""
    directory.mkdir(exist_ok=True)
    path = directory / f"notes-{number}"
    answer = forked(_in_process, run, path, name and str(directory / name), options, kill)
    how = answer.get("ended")
    notes = dict(read(path))
    result = {"notes": notes, "ended": how is None, "reached": answer.get("reached", ())}
    if how is not None and (how != "killed" or kill is None):
        result["why"] = f"{how}: {answer['output'].strip().splitlines()[-1:]}"
    if answer.get(ERROR):
        result |= {"why": answer[ERROR], "refused": not any(key.startswith("batch") for key in notes)}
    return result


def _in_process(run: Run, path: Path, directory: str | None, options: dict[str, Any], kill: Any) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    trace = Trace(path, kill)
    try:
        run(trace, directory, options)
    except Exception as error:
        return {ERROR: f"{type(error).__name__}: {error}"}
    return {"reached": list(trace.counts)}
