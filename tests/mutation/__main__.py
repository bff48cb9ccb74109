"""Looks for rules that no test holds: ``python -m tests.mutation [SOURCE ...] [--count N] [--seed N]``.

A sample of small changes of the sources of `graph`, `engine`, `deferred` and `bundle` is tried, one at a time, each with the tests that run
its line, in a copy of the project. Printed are the changes that no test noticed, with their place. Those that change no behaviour are in
``tests/mutation/same.toml``, each with the reason. Of the others, fewer than 10 % may survive; else the exit status is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import queue
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.mutation.changes import Change, survey
from tests.mutation.covering import PACKAGES, Covering, covering
from tests.mutation.trying import ROOT, Copy, Outcome, Trial, chosen, covering_tests

_MOST_SURVIVORS: Final = 0.1
_TELL_AFTER: Final = 25
_SAME: Final = Path(__file__).parent / "same.toml"
_Known = dict[tuple[str, str, str], str]
"""The reasons why changes change no behaviour, by source, line and change."""

_Found = tuple[str, str, Change]
"""A source, a line of it, and a change."""


def _sources(wanted: Sequence[str]) -> list[str]:
    """The sources, or those whose names begin with one of some texts, such as ``bundle/`` or ``series/pins``."""
    package = ROOT / "src" / "milepost"
    found = sorted(path.relative_to(package).as_posix() for each in PACKAGES for path in (package / each).rglob("*.py"))
    return [name for name in found if not wanted or name.startswith(tuple(wanted))]


def _files_of_tests(folders: Sequence[str]) -> list[str]:
    found = {
        path
        for each in folders
        for path in ([ROOT / each] if (ROOT / each).is_file() else (ROOT / each).rglob("test_*.py"))
    }
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def _known() -> _Known:
    listed = tomllib.loads(_SAME.read_text(encoding="utf-8")).get("change", [])
    return {(each["source"], each["line"], each["change"]): each["reason"] for each in listed}


def _sample(every: Sequence[_Found], seed: int, count: int) -> list[_Found]:
    """The changes that are tried. A change of one source leaves those of the others in it."""
    times: Counter[str] = Counter()
    places: list[tuple[bytes, _Found]] = []
    for each in every:
        text = "\n".join(map(str, each[:2])) + f"\n{each[2]}"
        times[text] += 1
        places.append((hashlib.sha256(f"{seed} {times[text]} {text}".encode()).digest(), each))
    return [each for _, each in sorted(places)[:count]]


class _Trials:
    """The trials of a sample, in a few copies of the project."""

    def __init__(self, copies: Sequence[Copy], covered: Covering, limit: float) -> None:
        self._tried = itertools.count(1)
        self._free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for each in copies:
            self._free.put(each)
        self._covered = covered
        self._limit = limit

    def __call__(self, source: str, line: str, change: Change) -> Trial:
        copy = self._free.get()
        try:
            tests = covering_tests(self._covered, source, copy.source(source).read_text(encoding="utf-8"), change)
            if not tests:
                trial = Trial(source, change, Outcome.NOT_RUN, 0, 0)
            else:
                order, seconds = chosen(self._covered, source, tests, self._limit)
                outcome = copy.try_change(source, change, order, seconds)
                trial = Trial(source, change, outcome, len(order), len(tests) - len(order))
        finally:
            self._free.put(copy)
        if not trial.is_held:
            left = f", {trial.left} left out" if trial.left else ""
            where = f" in {change.function}" if change.function else ""
            print(f"src/milepost/{source}:{change.line}{where}: {trial.outcome.value} ({trial.ran} tests{left})")
            print(f"    {line}\n    {change}", flush=True)
        if not (tried := next(self._tried)) % _TELL_AFTER:
            print(f"{tried} tried", flush=True)
        return trial


def main() -> int:
    """Tries and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "sources", nargs="*", metavar="SOURCE", help="how the names of the sources begin, such as series/pins"
    )
    parser.add_argument("--count", type=int, default=500, help="how many changes are tried")
    parser.add_argument("--seed", type=int, default=1, help="another one gives another sample")
    parser.add_argument("--limit", type=float, default=20, help="the seconds that the tests of one change may take")
    parser.add_argument("--workers", type=int, default=2, help="how many changes are tried at a time")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="files and folders of tests")
    parser.add_argument("--line", type=int, help="try only changes of this line")
    options = parser.parse_args()
    cache = ROOT / ".cache" / "mutants"
    known = _known()
    every = [
        (name, line, change)
        for name in _sources(options.sources)
        for line, change in survey((ROOT / "src" / "milepost" / name).read_text(encoding="utf-8"))
    ]
    for source, line, change in known.keys() - {(name, line, str(change)) for name, line, change in every}:
        if not options.sources:
            print(f"{_SAME.name} has a change that is not possible any more: {source}: {line}: {change}")
    every = [each for each in every if options.line in (None, each[2].line)]
    sample = _sample(every, options.seed, options.count)
    to_try = [each for each in sample if (each[0], each[1], str(each[2])) not in known]
    begun = time.monotonic()
    with ExitStack() as stack:
        copies = [stack.enter_context(Copy()) for _ in range(options.workers)]
        covered = covering(copies[0].tree, cache, _files_of_tests(options.tests), options.workers)
        for each in copies:
            each.warm_up(covered)
        run = _Trials(copies, covered, options.limit)
        print(
            f"trying {len(to_try)} of {len(every):,} changes; {len(sample) - len(to_try)} of the sample change no behaviour"
        )
        with ThreadPoolExecutor(options.workers) as pool:
            trials = list(pool.map(lambda each: run(*each), to_try))
    counts = Counter(trial.outcome for trial in trials)
    survived = sum(not trial.is_held for trial in trials)
    share = survived / max(1, len(trials))
    print(", ".join(f"{outcome.value}: {counts[outcome]}" for outcome in Outcome))
    print(f"{survived} of {len(trials)} changes survived ({share:.1%}), in {time.monotonic() - begun:.0f} s")
    return int(share >= _MOST_SURVIVORS)


if __name__ == "__main__":
    raise SystemExit(main())
