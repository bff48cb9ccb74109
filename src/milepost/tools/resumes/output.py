"""Compares the lines that a program has written to its output.

Of several processes, each is compared with that of the same rank. What they have written to the output of their launcher comes in any order.

A run that was killed writes some lines twice, since it computes the steps after its last checkpoint again. It may lack a line that it would have
written right after a save. So each line of each of its processes must be one of the undisturbed run, in the same order, and the last one must be
there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from milepost.tools.resumes.attempt import LAUNCHER, Attempt
from milepost.tools.resumes.finding import Finding


def prepared(lines: Iterable[str], directory: str, ignored: Sequence[re.Pattern[str]]) -> list[str]:
    """The lines to compare: without those to ignore, and without the name of the directory of the run.

    Args:
        lines: The lines of one process.
        directory: The directory of the run.
        ignored: Expressions; a line in which one is found is left out.

    Example:
        >>> prepared(["step 1 in /tmp/a/run", "12:30 begun"], "/tmp/a", [re.compile(r"^\\d+:")])
        ['step 1 in {directory}/run']
    """
    names = {directory, os.path.realpath(directory)}
    kept = [line for line in lines if not any(each.search(line) for each in ignored)]
    for name in sorted(names, key=len, reverse=True):
        kept = [line.replace(name, "{directory}") for line in kept]
    return kept


def compare_outputs(
    undisturbed: Attempt, attempts: Sequence[Attempt], homes: tuple[Path, Path], ignored: Sequence[re.Pattern[str]]
) -> Finding | None:
    """How the output of two runs differs; None if every line is the same.

    Args:
        undisturbed: The run that was not killed.
        attempts: The starts of the other one.
        homes: The directories of the two runs.
        ignored: Expressions; a line in which one is found is left out.
    """
    for name, parts in undisturbed.outputs.items():
        expected = [line for part in parts for line in prepared(part, str(homes[0]), ignored)]
        found = [
            [
                prepared(part, str(homes[1]), ignored)
                for part in attempt.outputs.get(name, [])
                if attempt.is_comparable(name)
            ]
            for attempt in attempts
        ]
        finding = compare_lines(expected, found, name, is_ordered=undisturbed.is_ordered(name))
        if finding is not None:
            return finding
    return None


def compare_lines(
    undisturbed: Sequence[str],
    attempts: Sequence[Sequence[Sequence[str]]],
    name: str = LAUNCHER,
    *,
    is_ordered: bool = True,
) -> Finding | None:
    """How the lines of a process differ; None if every line is the same.

    Args:
        undisturbed: The lines of the undisturbed run.
        attempts: For each start of the run that was killed, the lines of each process that it has started.
        name: Which process that is.
        is_ordered: Whether the order counts.
    """
    for number, parts in enumerate(attempts):
        for lines in parts:
            position = 0
            for line in lines:
                try:
                    position = undisturbed.index(line, position if is_ordered else 0) + 1
                except ValueError:
                    return Finding(
                        f"{name} wrote another line {'when it was started again' if number else 'before it was killed'}",
                        None,
                        _nearest(line, undisturbed),
                        repr(line),
                        is_resumed=number > 0,
                        hint="if the line may differ, as a time may, leave it out with --ignore",
                    )
    last = [line for lines in attempts[-1] for line in lines]
    if undisturbed and is_ordered and undisturbed[-1] not in last:
        return Finding(
            f"the last line of the undisturbed run was not written by {name} in the other one",
            None,
            repr(undisturbed[-1]),
        )
    return None


def _nearest(line: str, lines: Sequence[str]) -> str:
    """The line that begins most as another one does."""
    best = max(lines, key=lambda each: _common(each, line), default="")
    return repr(best) if _common(best, line) else "no such line"


def _common(first: str, second: str) -> int:
    """How many characters at the beginning of two texts are the same."""
    pairs = zip(first, second, strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
