"""One run of one library's tests, in a process and a directory of its own: `python -P -m tests.peers.child NAME CHECKOUT WAY ANSWER`.

With the way `milepost`, the module of the suite is a plugin of pytest. With the way `own`, the library does everything itself. The answer is
a file of JSON.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.peers.suite import Suite, matching
from tests.peers.suites import MODULES

WAYS = ("own", "milepost")


class Record:
    """A plugin of pytest that leaves out tests and remembers how the others end."""

    def __init__(self, excluded: Mapping[str, str]) -> None:
        self._excluded = excluded
        self.tests: dict[str, dict[str, str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leaves out what is excluded."""
        kept = []
        for item in items:
            pattern = matching(self._excluded, item.nodeid)
            if pattern is None:
                kept.append(item)
            else:
                self.tests[item.nodeid] = {"ended": "excluded", "why": pattern}
        items[:] = kept

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Counts a file that cannot be imported as one test."""
        if report.outcome != "passed":
            self.tests[report.nodeid] = {"ended": report.outcome, "why": _why(report)}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has passed if it was called, and if nothing of it has failed."""
        known = self.tests.get(report.nodeid)
        if report.outcome == "passed":
            if report.when == "call" and known is None:
                self.tests[report.nodeid] = {"ended": "passed", "why": ""}
        elif known is None or known["ended"] != "failed":
            self.tests[report.nodeid] = {"ended": report.outcome, "why": _why(report)}


def _why(report: Any) -> str:
    """The first line of an error, or the reason of a skip."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash else report.longrepr).strip().splitlines()
    return lines[0] if lines else "no reason"


def _main(name: str, checkout: Path, way: str, answer: Path) -> None:
    module = importlib.import_module(MODULES[name])
    suite: Suite = module.SUITE
    for source, target in suite.copied.items():
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        if (checkout / source).is_dir():
            shutil.copytree(checkout / source, target)
        else:
            shutil.copy(checkout / source, target)
    record = Record(suite.excluded if way == "milepost" else {})
    os.environ.update(suite.environment)
    plugins: list[Any] = [
        *map(importlib.import_module, suite.plugins),
        record,
        *([module] if way == "milepost" else []),
    ]
    files = sorted(str(file) for pattern in suite.files for file in Path().glob(pattern))
    settings = ["-c", os.devnull, "--rootdir", ".", "--import-mode=importlib", "-p", "no:cacheprovider"]
    settings += ["--continue-on-collection-errors", "-q", "--tb=short", "-W", "ignore"]
    ended = pytest.main([*settings, *files], plugins=plugins)
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or not record.tests:
        sys.exit(f"the tests of {name} were not run to their end: {ended!r}")
    answer.write_text(
        json.dumps(
            {
                "suite": dataclasses.asdict(suite),
                "versions": {package: importlib.metadata.version(package) for package in suite.packages},
                "tests": record.tests,
            }
        )
    )


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
    sys.stdout.flush()
    os._exit(0)  # several frameworks in one process may crash when Python releases them
