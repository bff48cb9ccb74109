"""Counts what is tried to break a save, a restore or a reader: ``python -m benchmarks.durability [--seconds N]``.

The tests that prove the promises of `docs/durability.md` are run, and what they do is counted: moments at which the power is cut,
states of the disk that a program starts from after that, operations that the disk refuses, processes that die. Then the inputs that
the search for hostile files has kept are tried again, and with ``--seconds`` the search goes on for so long; that needs atheris.

The results are in ``benchmarks/results/durability.md``. Something that breaks is an error, and then none are written. With ``--only``, what was
counted before of other subjects stays, with the commit of its sources.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks import runner
from milepost.testing import FaultyStorage
from tests.fuzzing import corpus
from tests.fuzzing.__main__ import search
from tests.fuzzing.outcome import check
from tests.fuzzing.targets import TARGETS

TRIED = {
    "one save": [
        "tests/series/test_commit.py",
        "tests/series/test_commit_crashes.py",
        "tests/series/test_leftovers.py",
    ],
    "an incremental save": ["tests/saving/test_incremental_crashes.py"],
    "a run with a manager": ["tests/manager/test_crashes.py", "tests/manager/test_after_commit.py"],
    "deletion, policies and pins": ["tests/manager/test_retention_crashes.py"],
    "a save of several processes": ["tests/several/test_crashes.py", "tests/several/test_next_save.py"],
}
"""The tests that try each."""
FILES = "hostile files"
COLUMNS = {
    "tests": "tests",
    "moments": "moments of a power cut",
    "states": "states of the disk after it",
    "refused": "operations refused",
    "died": "processes that died or stopped",
}


class Count:
    """A plugin for pytest that counts what the tests try."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self._started: list[subprocess.Popen[Any]] = []

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Counts while the body runs."""
        found, started = self.found, self._started
        crash_states, fail, begin = FaultyStorage.crash_states, FaultyStorage.fail, subprocess.Popen.__init__

        def counted_states(storage: Any, *arguments: Any, **options: Any) -> Iterator[FaultyStorage]:
            found["moments"] += 1
            for state in crash_states(storage, *arguments, **options):
                found["states"] += 1
                yield state

        def counted_failure(storage: Any, *arguments: Any, **options: Any) -> None:
            # What refuses everything from some operation on is a process that has died.
            found["died" if options.get("times", 1) is None else "refused"] += 1
            fail(storage, *arguments, **options)

        def noted(process: Any, *arguments: Any, **options: Any) -> None:
            started.append(process)
            begin(process, *arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FaultyStorage, "crash_states", counted_states)
            patch.setattr(FaultyStorage, "fail", counted_failure)
            patch.setattr(subprocess.Popen, "__init__", noted)
            yield
        found["died"] += sum(process.returncode == -signal.SIGKILL for process in started)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        """The cases of `tests/several/test_crashes.py` are tried by programs that this process does not see."""
        result = yield
        if fixturedef.argname == "cases":
            for case in result:
                self.found["refused" if case["kind"].startswith("disk full") else "died"] += 1
        return result

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Counts tests."""
        self.found["tests"] += report.when == "call" and report.passed


def tried(what: str) -> dict[str, Any]:
    """Runs the tests of one subject and counts."""
    count, begun = Count(), _processor_seconds()
    with count.counting():
        # On a busy machine, what several processes do takes longer than the tests are otherwise given.
        quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=0"]
        status = pytest.main([*quiet, *TRIED[what]], plugins=[count])
    if status != pytest.ExitCode.OK:
        raise SystemExit(f"the tests of {what} do not pass: {status}")
    return {"tried": what, "seconds": _processor_seconds() - begun, **{name: count.found[name] for name in COLUMNS}}


def _processor_seconds() -> float:
    """Of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def fuzzed(target: str, seconds: float, folder: Path) -> dict[str, Any]:
    """Tries the kept inputs of one format again, and goes on with the search."""
    kept = corpus.load(target)
    for data in kept:
        check(TARGETS[target].read, data)
    found: dict[str, Any] = {"tried": 0, "seconds": 0, "findings": []}
    if seconds:
        found = search(target, seconds, folder / target)
    if found["findings"]:
        raise SystemExit(f"{target} is broken: {found['findings']}")
    return {"format": target, "kept": len(kept), "new": found["tried"], "seconds": found["seconds"]}


def text(samples: list[dict[str, Any]]) -> str:
    """The report."""
    crashes = [sample for sample in samples if "tried" in sample]
    formats = [sample for sample in samples if "format" in sample]
    rows = [[sample["tried"], *(f"{sample[name]:,}" for name in COLUMNS)] for sample in crashes]
    rows.append(["together", *(f"{sum(sample[name] for sample in crashes):,}" for name in COLUMNS)])
    inputs = [[sample["format"], f"{sample['kept']:,}", f"{sample['new']:,}"] for sample in formats]
    inputs.append(["together", *(f"{sum(sample[name] for sample in formats):,}" for name in ("kept", "new"))])
    spent = sum(sample["seconds"] for sample in formats)
    searched = (
        f"The search for new ones took {spent:,.0f} s of the processor." if spent else "No new ones were searched for."
    )
    return "\n\n".join(
        [
            "### Crashes and faults",
            f"All tests passed, in {sum(sample['seconds'] for sample in crashes):,.0f} s of the processor. A power cut is tried at each moment "
            "that makes a difference, and what it may leave on the disk is read each time.",
            runner.table(["", *COLUMNS.values()], rows),
            "### Hostile files",
            f"Each input gave a result or one of milepost's errors, in time and memory within the limits of the tests. {searched} "
            "They are counted by hundreds.",
            runner.table(["format", "inputs kept and tried again", "new inputs tried"], inputs),
        ]
    )


def earlier() -> list[dict[str, Any]]:
    """What earlier runs have counted."""
    path = runner.RESULTS / "durability.json"
    return json.loads(path.read_text())["samples"] if path.exists() else []


def main() -> None:
    """Counts and reports."""
    parser = runner.arguments(__doc__, "durability", rounds=1)
    parser.add_argument("--seconds", type=float, default=0, help="to search for hostile files, of all formats together")
    parser.add_argument(
        "--only", action="append", choices=[*TRIED, FILES], help="count only this anew; may be given more than once"
    )
    options = runner.begin(parser, None)
    facts, wanted = runner.machine(), options.only or [*TRIED, FILES]
    samples = [tried(what) for what in TRIED if what in wanted]
    if FILES in wanted:
        with runner.scratch(options.memory) as folder:
            samples += [fuzzed(target, options.seconds / len(TARGETS), folder) for target in TARGETS]
    samples = [sample | {"sources": facts["commit"]} for sample in samples]
    samples += [sample for sample in earlier() if sample.get("tried", FILES) not in wanted]
    samples.sort(key=lambda sample: list(TRIED).index(sample["tried"]) if "tried" in sample else len(TRIED))
    facts["commit"] = ", ".join(dict.fromkeys(sample["sources"] for sample in samples))
    runner.report(options.name, text(samples), facts, samples)


if __name__ == "__main__":
    main()
