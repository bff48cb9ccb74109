"""A plugin of pytest for the search for rules that no test holds: it notes which test runs which lines, and runs chosen tests in an order."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.mutation import warm

CHOSEN = "MILEPOST_CHOSEN_TESTS"
"""The variable of the environment that names a file with the tests to run, a line for each."""

SETTINGS = "coverage.ini"
"""The file with the settings of coverage, in a copy of the project."""
_SERVES = warm.PIPES in os.environ


def _measures() -> bool:
    return CHOSEN not in os.environ and not _SERVES


def pytest_configure(config: pytest.Config) -> None:
    if _measures():
        # processes that a test starts read these settings, which name the test, and not those of this process
        if os.environ.pop("COVERAGE_PROCESS_CONFIG", None) is not None:
            os.environ["COVERAGE_PROCESS_START"] = str(Path(SETTINGS).absolute())
    else:
        # a failure is enough, and need not be made small
        hypothesis.settings.register_profile(
            "mutants",
            hypothesis.settings.default,
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
            database=None,
        )
        hypothesis.settings.load_profile("mutants")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHOSEN in os.environ:
        places = {test: place for place, test in enumerate(Path(os.environ[CHOSEN]).read_text().splitlines())}
        items[:] = sorted((item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid])


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if _SERVES:
        warm.serve(session)
    return _SERVES or None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    if _measures():
        import coverage

        measuring = coverage.Coverage.current()
        if measuring is not None:
            measuring.switch_context(item.nodeid)
    return (yield)


_RESULTS = Path(f"results-{os.getpid()}").absolute()
_taken: dict[str, float] = {}
_failed: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not _measures() or hasattr(report, "node"):  # a process of pytest-xdist tells it itself
        return
    test = report.nodeid
    _taken[test] = _taken.get(test, 0.0) + report.duration
    if report.outcome != "passed":
        _failed.add(test)
    if report.when == "teardown":
        taken = None if test in _failed else _taken[test]
        with _RESULTS.open("a") as file:
            file.write(json.dumps([test, taken]) + "\n")
