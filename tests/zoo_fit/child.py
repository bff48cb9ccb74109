"""Runs the rows of the table on one trainer: ``python -m tests.zoo_fit.child TRAINER [TEXT ...]`` prints lines of JSON.

With texts, only the rows are run whose names have one of them.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.zoo_fit.rows import Row, rows
from tests.zoo_fit.trainers import imported


def run_row(row: Row, trainer: str, packages: tuple[Any, Any], directory: Path) -> dict[str, Any]:
    """The result of one row."""
    before = os.times()
    reason = row.left_out(trainer)
    result: dict[str, Any] = {"verdict": "—", "why": reason} if reason else row.check(trainer, packages, directory)
    if result["verdict"] == "inexact" and not row.said:
        result["verdict"] = "DIFFERS"  # a warning of something else
    now = os.times()
    result["seconds"] = round(now.children_user + now.children_system - before[2] - before[3], 1)
    return result


def main(trainer: str, *texts: str) -> None:
    packages = imported(trainer)
    with tempfile.TemporaryDirectory() as directory:
        for number, row in enumerate(rows()):
            if texts and not any(text in str(row) for text in texts):
                continue
            result = run_row(row, trainer, packages, Path(directory, str(number)))
            print(json.dumps({"row": str(row), "trainer": trainer, **result}), flush=True)
            print(f"{trainer}, {result['seconds']} s, {row}: {result['verdict']}", file=sys.stderr, flush=True)
            if "why" in result:
                print("    ", result["why"], "|", result.get("where", ""), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
