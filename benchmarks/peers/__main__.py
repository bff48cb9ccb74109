"""Tries each library, or those that are named, and writes the table: `python -m benchmarks.peers ["torch DCP" ...]`."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.peers import child, libraries, table
from benchmarks.peers.experiments import ROWS

_TRY = "--try"


def tried(title: str) -> dict[str, Any]:
    """What the experiments find about a library."""
    peer = libraries.peer(title)
    findings = {}
    for row in ROWS:
        with tempfile.TemporaryDirectory() as scratch:
            finding = row.run(peer, Path(scratch))
        print(f"{title}, {row.TITLE}: {finding.cell} {dict(finding.seen)}", file=sys.stderr, flush=True)
        findings[row.KEY] = {"cell": finding.cell, "seen": dict(finding.seen)}
    versions = {package: importlib.metadata.version(package) for package in peer.packages}
    return {"findings": findings, "versions": versions, "date": time.strftime("%Y-%m-%d")}


def _main(titles: list[str]) -> None:
    for title in titles or libraries.COLUMNS:
        with tempfile.NamedTemporaryFile("r") as answer:
            command = [sys.executable, "-m", "benchmarks.peers", _TRY, title, answer.name]
            subprocess.run(command, env=child.environment(), check=True)
            found = {**(table.results() if table.RESULTS.exists() else {}), title: json.load(answer)}
        table.RESULTS.write_text(
            json.dumps({name: found[name] for name in libraries.COLUMNS if name in found}, indent=1) + "\n"
        )
    table.PAGE.write_text(table.page(table.results(), table.PAGE.read_text()))
    table.README.write_text(table.readme(table.README.read_text(), table.results()))


if __name__ == "__main__":
    if sys.argv[1:2] == [_TRY]:
        os.environ.update(child.ENVIRONMENT)
        Path(sys.argv[3]).write_text(json.dumps(tried(sys.argv[2])))
    else:
        _main(sys.argv[1:])
