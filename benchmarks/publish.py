"""Copies the reports of the benchmarks into `docs/benchmarks.md`: ``python -m benchmarks.publish``.

A report goes where the page has its heading, or at the end, and ends with the last line that says what was measured. What the
page has between two reports, such as remarks, stays. The numbers that the README, and the beginning of the page, have of them are changed by
hand; `tests/test_readme.py` names those that are old.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import runner

PAGE: Final = Path(__file__).parents[1] / "docs" / "benchmarks.md"
ELSEWHERE: Final = {"durability"}
"""Reports that are on other pages."""


def reports() -> list[str]:
    """The reports that the page has."""
    return [file.read_text().strip() for file in sorted(runner.RESULTS.glob("*.md")) if file.stem not in ELSEWHERE]


def published(page: str, found: Sequence[str]) -> str:
    """A page with new reports in the place of the old ones that have the same headings. Those that it lacks come at its end.

    Args:
        page: What the page has.
        found: The reports.
    """
    lines = page.splitlines()
    headings = [report.splitlines()[0] for report in found]
    begins = {lines.index(heading): report for heading, report in zip(headings, found, strict=True) if heading in lines}
    parts, places = lines[: min(begins, default=len(lines))], [*sorted(begins), len(lines)]
    for begin, end in itertools.pairwise(places):
        last = max((number for number in range(begin, end) if lines[number].startswith(runner.MEASURED)), default=begin)
        parts += [begins[begin], *lines[last + 1 : end]]
    new = [f"\n{report}" for report in found if report not in begins.values()]
    return "\n".join([*parts, *new]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(published(PAGE.read_text(), reports()))
