"""A plugin for pytest that says which files of tests take the time: ``make test-times``, or ``pytest -p tests.times``.

For each file it prints how many cases there are, the seconds of CPU of all that they ran, and the seconds that they took.
The CPU is that of the process of tests and of its children: those that have ended, and those that stand by for programs
(`tests.programs`) with their programs that have ended. A machine that has other work makes it up to a quarter longer.
Where a file takes much longer than its CPU, it waits, or programs run beside each other.

What is needed before the first test and after the last - imports, the collection of tests, the ends of processes - has a line of
its own, for all processes of tests together.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

_TICKS = os.sysconf("SC_CLK_TCK")
_BEGUN = "milepost_begun"
"""The attribute of a test item with what was used before it."""


def _used() -> tuple[float, float]:
    """Seconds of CPU that this process and its children have used, and the seconds of a clock."""
    cpu = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        cpu += usage.ru_utime + usage.ru_stime
    for children in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            for child in children.read_text().split():
                with suppress(OSError):  # the child has
                    # What follows the name, which may have spaces; see proc(5) for the order.
                    fields = Path("/proc", child, "stat").read_text().rpartition(")")[2].split()
                    cpu += sum(map(int, fields[11:15])) / _TICKS
    return cpu, time.monotonic()


class _InEachProcess:
    """Measures, where tests run."""

    def __init__(self) -> None:
        self.in_tests = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        setattr(item, _BEGUN, _used())
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if call.when == "teardown":  # before, a test may have taken functions of the system away
            begun, ended = getattr(item, _BEGUN), _used()
            report.used = [ended[0] - begun[0], ended[1] - begun[1]]
            self.in_tests += report.used[0]
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["used_beside"] = _used()[0] - self.in_tests


class _Printing:
    """Adds up, and prints."""

    def __init__(self, measuring: _InEachProcess) -> None:
        self.measuring = measuring
        self.files: dict[str, list[float]] = {}
        self.beside: list[float] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        cases, cpu, seconds = self.files.get(file, (0, 0, 0))
        used = getattr(report, "used", (0, 0))  # only the report of the teardown has it
        cpu, seconds = cpu + used[0], seconds + used[1]
        self.files[file] = [cases + (report.when == "setup"), cpu, seconds]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error) -> None:
        self.beside.append(getattr(node, "workeroutput", {}).get("used_beside", 0.0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.files:
            return
        write = terminalreporter.write_line
        terminalreporter.section("seconds of CPU, and of a clock, by file")
        for file, (cases, cpu, seconds) in sorted(self.files.items(), key=lambda each: -each[1][1]):
            write(f"{cases:6} {cpu:8.1f} {seconds:8.1f}  {file}")
        directories: dict[str, list[float]] = {}
        for file, numbers in self.files.items():
            kept = directories.setdefault(
                "/".join(file.split("/")[:2]) if file.count("/") > 1 else file.rpartition("/")[0], [0, 0, 0]
            )
            kept[:] = [before + each for before, each in zip(kept, numbers, strict=True)]
        terminalreporter.section("by directory")
        for directory, (cases, cpu, seconds) in sorted(directories.items(), key=lambda each: -each[1][1]):
            write(f"{cases:6} {cpu:8.1f} {seconds:8.1f}  {directory}")
        cases, cpu, seconds = (sum(column) for column in zip(*self.files.values(), strict=True))
        write(f"{cases:6} {cpu:8.1f} {seconds:8.1f}  all tests")
        beside = sum(self.beside) if self.beside else _used()[0] - self.measuring.in_tests
        write(f"{'':6} {beside:8.1f} {'':8}  beside the tests: imports, collection, ends of processes")


def pytest_configure(config: pytest.Config) -> None:
    measuring = _InEachProcess()
    config.pluginmanager.register(measuring, "milepost-times-measuring")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Printing(measuring), "milepost-times-printing")
