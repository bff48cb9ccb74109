"""Runs the tests of other libraries with milepost, and writes their section: `python -m tests.peers flax=PATH [...]`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.peers import table
from tests.peers import child, section
from tests.peers.suites import MODULES


def _run(name: str, checkout: Path, way: str) -> dict[str, Any]:
    """How each test of a library ends."""
    paths = [str(table.ROOT), str(table.ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch, "answer.json")
        directory = Path(scratch, "run")
        directory.mkdir()
        command = [sys.executable, "-P", "-m", "tests.peers.child", name, str(checkout), way, str(answer)]
        subprocess.run(command, cwd=directory, env=environment, check=True, stdout=sys.stderr)
        found: dict[str, Any] = json.loads(answer.read_text())
    return found


def _commit(checkout: Path) -> str:
    """The commit of a checkout, or nothing if it is no repository of git."""
    done = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def _main(arguments: list[str]) -> int:
    checkouts = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if name not in MODULES or not equals or not Path(path).is_dir():
            print(
                f"usage: python -m tests.peers NAME=CHECKOUT ..., where NAME is one of {', '.join(MODULES)}",
                file=sys.stderr,
            )
            return 2
        checkouts[name] = Path(path).absolute()
    complaints = []
    for name, checkout in checkouts.items():
        own, shimmed = (_run(name, checkout, way) for way in child.WAYS)
        found = {**section.finding(own, shimmed), "commit": _commit(checkout), "date": time.strftime("%Y-%m-%d")}
        print(f"{name}: {found['counts']}", file=sys.stderr)
        complaints += [f"{name}: {complaint}" for complaint in section.complaints(own, shimmed)]
        section.RESULTS.write_text(json.dumps({**section.results(), name: found}, indent=1) + "\n")
    found_so_far = section.results()
    table.PAGE.write_text(section.page(found_so_far, table.PAGE.read_text()))
    print("\n".join(complaints), file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
