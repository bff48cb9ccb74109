"""Finds out which tests run which lines, and how long each test takes.

Each file of tests has a file of JSON in ``.cache/mutants``, so that only those are run again that have changed, or all when a source has::

    {"sources": digest of the sources, "tests": digest of the file,
     "seconds": {test: seconds}, "lines": {source: {test: the bits of the lines that it runs, in hexadecimal digits}}}

Only tests that pass are in it. The lines of processes that a test starts count, unless they are killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.mutation.plugin import SETTINGS

PACKAGES: Final = ("graph", "engine", "deferred", "bundle")
_PHASE: Final = re.compile(r" \((setup|call|teardown)\)$")


class Covering(NamedTuple):
    """Which tests run which lines.

    Attributes:
        seconds: How long each test takes.
        lines: For each source, the bits of the lines that each test runs.
    """

    seconds: dict[str, float]
    lines: dict[str, dict[str, int]]

    def of(self, source: str, lines: Sequence[int]) -> set[str]:
        """The tests that run one of these lines of a source."""
        wanted = sum(1 << line for line in set(lines))
        return {test for test, bits in self.lines.get(source, {}).items() if bits & wanted}


def covering(tree: Path, cache: Path, files: Sequence[str], workers: int) -> Covering:
    """Runs the files of tests of which nothing is known, and returns what is known of all.

    Args:
        tree: A copy of the project.
        cache: The folder for what is known.
        files: The files of tests, relative to the project.
        workers: How many processes run tests.
    """
    sources = _digest(*(path for each in PACKAGES for path in sorted((tree / "src/milepost" / each).rglob("*.py"))))
    stale = [file for file in files if not _is_fresh(tree, cache, file, sources)]
    if stale:
        print(f"running {len(stale)} of {len(files)} files of tests, to see which lines they run", flush=True)
        _measure(tree, cache, stale, sources, workers)
    seconds: dict[str, float] = {}
    lines: dict[str, dict[str, int]] = defaultdict(dict)
    for file in files:
        known = json.loads(_known(cache, file).read_text())
        seconds.update(known["seconds"])
        for source, tests in known["lines"].items():
            lines[source].update({test: int(bits, 16) for test, bits in tests.items()})
    return Covering(seconds, dict(lines))


def _known(cache: Path, file: str) -> Path:
    return cache / f"{file}.json"


def _is_fresh(tree: Path, cache: Path, file: str, sources: str) -> bool:
    known = _known(cache, file)
    if not known.exists():
        return False
    found = json.loads(known.read_text())
    return bool(found["sources"] == sources and found["tests"] == _digest(tree / file))


def _digest(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _measure(tree: Path, cache: Path, files: Sequence[str], sources: str, workers: int) -> None:
    import coverage  # the only environment that has it is this one's

    settings = tree / SETTINGS
    settings.write_text(
        textwrap.dedent(
            f"""\
            [run]
            source = {tree / "src/milepost"}
            parallel = true
            core = ctrace
            data_file = {tree / "lines/of"}
            context = ${{PYTEST_CURRENT_TEST-}}
            patch =
                subprocess
                _exit
            disable_warnings = no-data-collected, module-not-measured
            """
        )
    )
    (tree / "lines").mkdir(exist_ok=True)
    environment = {**environment_of(tree), "PYTEST_CURRENT_TEST": ""}
    command = [
        sys.executable,
        "-m",
        "coverage",
        "run",
        f"--rcfile={settings}",
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.mutation.plugin",
    ]
    command += ["-n", str(workers), "--dist", "loadfile"] if workers > 1 else []
    with (tree / "log").open("wb") as log:
        subprocess.run([*command, *files], cwd=tree, env=environment, stdout=log, stderr=log, check=False)
    print((tree / "log").read_text(errors="replace").rstrip().rpartition("\n")[2], flush=True)
    results = [json.loads(line) for path in tree.glob("results-*") for line in path.read_text().splitlines()]
    seconds = {test: taken for test, taken in results if taken is not None}
    data = coverage.CoverageData(basename=str(tree / "lines" / "all"))
    for path in (tree / "lines").glob("of.*"):
        other = coverage.CoverageData(basename=str(path))
        other.read()
        data.update(other)
    lines: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for measured in data.measured_files():
        source = Path(measured).as_posix().partition("src/milepost/")[2]
        if source.partition("/")[0] not in PACKAGES:
            continue
        bits: dict[str, int] = defaultdict(int)
        for line, contexts in data.contexts_by_lineno(measured).items():
            for context in contexts:
                for part in context.split("|"):
                    test = _PHASE.sub("", part)
                    if test in seconds:
                        bits[test] |= 1 << line
        for test, found in bits.items():
            lines[test.partition("::")[0]][source][test] = f"{found:x}"
    for file in files:
        of_file: Any = {
            "sources": sources,
            "tests": _digest(tree / file),
            "seconds": {test: taken for test, taken in seconds.items() if test.partition("::")[0] == file},
            "lines": lines[file],
        }
        _known(cache, file).parent.mkdir(parents=True, exist_ok=True)
        _known(cache, file).write_text(json.dumps(of_file))


def environment_of(tree: Path) -> dict[str, str]:
    """The environment of tests in a copy of the project: its own sources, the same random examples each time."""
    own = {
        "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}",
        "MILEPOST_TESTS": "core",
        "CI": "1",
        "PYTHONHASHSEED": "1",
    }
    return {**os.environ, **own}
