"""Runs rows of the table: ``python -m tests.zoo_fit.child [--everywhere] TRAINER[,TRAINER] [TEXT ...]`` prints lines of JSON.

The trainers must have one backend. With texts, only the rows are run whose names contain one of them. The published
table is made with ``--everywhere``: each row is tried at all places that the table names. Without it, each row is tried
at a few places, for the tests of the suite.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.zoo_fit.rows import Row, rows
from tests.zoo_fit.trainers import imported


def run_row(row: Row, trainer: str, packages: tuple[Any, Any], directory: Path, everywhere: bool) -> dict[str, Any]:
    """The result of one row."""
    before = os.times()
    reason = row.left_out(trainer)
    if reason:
        result: dict[str, Any] = {"verdict": "—", "why": reason}
    else:
        result = row.check(trainer, packages, directory, everywhere)
    if result["verdict"] == "inexact" and not row.said:
        result["verdict"] = "DIFFERS"  # a warning of something else
    now = os.times()
    result["seconds"] = round(now.children_user + now.children_system - before[2] - before[3], 1)
    result["everywhere"] = everywhere
    return result


def run_rows(trainers: list[str], texts: list[str], everywhere: bool) -> None:
    """Runs rows with trainers of one backend, and prints a line for each."""
    chosen = [row for row in rows() if not texts or any(text in str(row) for text in texts)]
    needs = {package for row in chosen for package in row.needs}
    packages = {trainer: imported(trainer, needs) for trainer in trainers}
    for row in chosen:
        for trainer in trainers:
            with tempfile.TemporaryDirectory() as directory:
                result = run_row(row, trainer, packages[trainer], Path(directory, "row"), everywhere)
            print(json.dumps({"row": str(row), "trainer": trainer, **result}), flush=True)
            print(f"{trainer}, {result['seconds']} s, {row}: {result['verdict']}", file=sys.stderr, flush=True)
            if "why" in result:
                print("    ", result["why"], "|", result.get("where", ""), file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo_fit.child")
    parser.add_argument("--everywhere", action="store_true")
    parser.add_argument("trainers")
    parser.add_argument("texts", nargs="*")
    given = parser.parse_args()
    run_rows(given.trainers.split(","), given.texts, given.everywhere)


if __name__ == "__main__":
    main()
