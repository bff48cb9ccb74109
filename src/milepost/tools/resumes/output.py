"""Compares the lines that a program has written to its output.

A run that was killed writes some lines twice, since it computes the steps after its last checkpoint again. It may lack a line that it would have
written right after a save. So each line of each of its processes must be one of the undisturbed run, in the same order, and the last one must be
there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

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


def compare_lines(undisturbed: Sequence[str], processes: Sequence[Sequence[str]]) -> Finding | None:
    """How the output of two runs differs; None if every line is the same.

    Args:
        undisturbed: The lines of the undisturbed run.
        processes: Those of each process of the run that was killed.
    """
    for number, lines in enumerate(processes):
        position = 0
        for line in lines:
            try:
                position = undisturbed.index(line, position)
            except ValueError:
                return Finding(
                    f"the program wrote another line {_of(number)}",
                    None,
                    _nearest(line, undisturbed),
                    repr(line),
                    is_resumed=number > 0,
                    hint="if the line may differ, as a time may, leave it out with --ignore",
                )
            position += 1
    if undisturbed and undisturbed[-1] not in processes[-1]:
        return Finding(
            "the last line of the undisturbed run was not written by the other one", None, repr(undisturbed[-1])
        )
    return None


def _of(number: int) -> str:
    return "when it was started again" if number else "before it was killed"


def _nearest(line: str, lines: Sequence[str]) -> str:
    """The line that begins most as another one does."""
    best = max(lines, key=lambda each: _common(each, line), default="")
    return repr(best) if _common(best, line) else "no such line"


def _common(first: str, second: str) -> int:
    """How many characters at the beginning of two texts are the same."""
    pairs = zip(first, second, strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
