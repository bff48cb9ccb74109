"""The section of `docs/peers.md` about the tests of other libraries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.peers import table
from tests.peers.suite import matching
from tests.peers.suites import MODULES

RESULTS = table.RESULTS.with_name("suites.json")
_END = "<!-- end of what tests.peers wrote -->\n"
_HEAD = """
## Tests of other libraries, run with milepost

`python -m tests.peers safetensors=PATH flax=PATH` runs the tests that libraries have for their own files. A plugin of pytest puts milepost in the
place of the library first, and nothing else is changed. The program takes checkouts of the libraries by their paths; milepost keeps nothing of
them, and CI does not run it. It writes this section.

A test is excluded if it tests what milepost does not offer. A test that fails shows what milepost does otherwise or lacks. A test is
not run if it skips itself, because something is not installed, or if it fails with the library itself in the same environment.

"""

Results = Mapping[str, Mapping[str, Any]]


def results() -> Results:
    """What the last runs found, by the name of the suite."""
    if not RESULTS.exists():
        return {}
    found: Results = json.loads(RESULTS.read_text())
    return found


def finding(own: Mapping[str, Any], shimmed: Mapping[str, Any]) -> dict[str, Any]:
    """What two runs of one suite say: `own` with the library itself, and `shimmed` with milepost."""
    suite = shimmed["suite"]
    ends = Counter[str]()
    reasons: dict[str, Counter[tuple[str, str]]] = {"failed": Counter(), "excluded": Counter(), "not run": Counter()}
    for test, seen in shimmed["tests"].items():
        ended, why = seen["ended"], seen["why"]
        of_own = own["tests"].get(test, {"ended": "passed", "why": ""})
        if ended == "excluded":
            reasons["excluded"][why, suite["excluded"][why]] += 1
        elif ended == "skipped":
            ended = "not run"
            reasons[ended][test, why] += 1
        elif of_own["ended"] == "failed":
            ended = "not run"
            reasons[ended][test, f"It fails with the library itself: {of_own['why']}"] += 1
        elif ended == "failed":
            pattern = matching(suite["failing"], test)
            reasons[ended][(test, why) if pattern is None else (pattern, suite["failing"][pattern])] += 1
        ends[ended] += 1
    return {
        "title": suite["title"],
        "replaced": suite["replaced"],
        "versions": shimmed["versions"],
        "counts": {ended: ends[ended] for ended in ("passed", "failed", "excluded", "not run")},
        "passed by the library": sum(seen["ended"] == "passed" for seen in own["tests"].values()),
        **{
            ended: [{"tests": tests, "count": count, "why": why} for (tests, why), count in counted.items()]
            for ended, counted in reasons.items()
        },
    }


def complaints(own: Mapping[str, Any], shimmed: Mapping[str, Any]) -> list[str]:
    """What a suite does not say of its tests: failures without an explanation, and patterns that no test fits any more."""
    suite, tests = shimmed["suite"], shimmed["tests"]
    ended = {kind: [test for test, seen in tests.items() if seen["ended"] == kind] for kind in ("excluded", "failed")}
    failed_anyway = {test for test, seen in own["tests"].items() if seen["ended"] == "failed"}
    return [
        *(
            f"{test} fails, and nothing says why: {tests[test]['why']}"
            for test in ended["failed"]
            if test not in failed_anyway and matching(suite["failing"], test) is None
        ),
        *(
            f"no test is {kind} any more that fits {pattern!r}"
            for patterns, kind in ((suite["excluded"], "excluded"), (suite["failing"], "failed"))
            for pattern in patterns
            if not any(matching({pattern: ""}, test) for test in ended[kind])
        ),
    ]


def section(found: Results) -> str:
    """The section, in Markdown, with the comments around it."""
    names = [name for name in MODULES if name in found]
    if not names:
        return ""
    lines = [
        "| tests of | tests | pass | fail | excluded | not run | pass with the library itself |\n",
        f"|{' --- |' * 7}\n",
    ]
    for name in names:
        suite, counts = found[name], found[name]["counts"]
        cells = (sum(counts.values()), *counts.values(), suite["passed by the library"])
        lines.append(f"| {suite['title']} | {' | '.join(map(str, cells))} |\n")
    parts = [table.KEPT, _HEAD, *lines]
    for name in names:
        suite = found[name]
        parts.append(f"\n### Tests of {suite['title']}\n\n{suite['replaced']}\n")
        parts.append(_listed("Fail:", suite["failed"]))
        parts.append(_listed("Excluded:", suite["excluded"]))
        parts.append(_listed("Not run:", _by_reason(suite["not run"])))
        versions = ", ".join(f"{package} {version}" for package, version in suite["versions"].items())
        commit = f", at the commit `{suite['commit']}` of the tests" if suite["commit"] else ""
        parts.append(f"\nRun on {suite['date']} with {versions}{commit}.\n")
    return "".join([*parts, _END])


def _listed(head: str, reasons: list[Mapping[str, Any]]) -> str:
    """A list of tests with reasons, where tests with the same reason share a line."""
    if not reasons:
        return ""
    return f"\n{head}\n\n" + "".join(f"- {line}\n" for line in _lines(reasons))


def _lines(reasons: Iterable[Mapping[str, Any]]) -> list[str]:
    together: dict[str, tuple[list[str], int]] = {}
    for reason in reasons:
        names, count = together.get(reason["why"], ([], 0))
        together[reason["why"]] = (
            [*names, *([f"`{reason['tests'].removeprefix('*::')}`"] if reason["tests"] else [])],
            count + reason["count"],
        )
    return [
        f"{', '.join(names)} ({_counted(count)}): {why}" if names else f"{_counted(count)}: {why}"
        for why, (names, count) in together.items()
    ]


def _counted(count: int) -> str:
    return f"{count} {'test' if count == 1 else 'tests'}"


def _by_reason(reasons: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Tests that skip themselves, without their names: there may be many."""
    return [
        {**reason, "tests": "" if not reason["why"].startswith("It fails") else reason["tests"]} for reason in reasons
    ]


def page(found: Results, text: str) -> str:
    """The text of `docs/peers.md` with the section in its place, which is the end."""
    return text.partition(table.KEPT)[0] + section(found)
