"""Tries a change of a source: runs the tests of its line on a changed copy of the project, until one fails."""

from __future__ import annotations

import ast
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from tests.mutation.changes import Change
from tests.mutation.covering import Covering, environment_of
from tests.mutation.plugin import CHOSEN
from tests.mutation.warm import Warm

ROOT: Final = Path(__file__).parents[2]
_NOT_COPIED: Final = (
    ".git",
    ".venv*",
    ".cache",
    ".*_cache",
    ".hypothesis",
    "__pycache__",
    "build",
    "dist",
    "results",
    "shared",
)
_START: Final = 20.0
"""Seconds that Python and pytest may take besides the tests."""
_SLOWER: Final = 4.0
"""How many times as long as before tests may take."""
_LONG: Final = 5.0
"""Seconds of a test up to which it is tried early, if it is in the module's own file."""
_ALL_TESTS_FAILED: Final = (1, 2, 3, 4)
"""The statuses of pytest after tests that failed, and after errors, such as those of a source that cannot be imported."""


class Outcome(Enum):
    """What became of a change."""

    NOTICED = "noticed"
    TOOK_TOO_LONG = "took too long"
    SURVIVED = "survived"
    NOT_RUN = "no test runs it"


class Trial(NamedTuple):
    """The result of a trial.

    Attributes:
        source: The source, below ``src/milepost``.
        change: The change.
        outcome: What became of it.
        ran: How many tests were to run.
        left: How many more run the line, and were left out because of the limit.
    """

    source: str
    change: Change
    outcome: Outcome
    ran: int
    left: int

    @property
    def is_held(self) -> bool:
        """Whether a test has noticed the change."""
        return self.outcome in (Outcome.NOTICED, Outcome.TOOK_TOO_LONG)


class Copy:
    """A copy of the project in a temporary folder, whose sources are changed. The project itself never is."""

    _times = itertools.count(1)

    def __init__(self) -> None:
        self._warm: Warm | None = None
        self._passing: set[str] = set()
        self._failing: set[str] = set()
        self.folder = Path(tempfile.mkdtemp(prefix="milepost-mutants-"))
        self.tree = self.folder / "tree"
        shutil.copytree(ROOT, self.tree, ignore=shutil.ignore_patterns(*_NOT_COPIED), symlinks=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._warm is not None:
            self._warm.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def source(self, name: str) -> Path:
        """The copy of a source."""
        return self.tree / "src" / "milepost" / name

    def warm_up(self, covered: Covering) -> None:
        """Starts a process in which changes inside functions are tried faster."""
        environment = {**environment_of(self.tree), "TMPDIR": str(self.folder)}
        files = sorted({test.partition("::")[0] for test in covered.seconds})
        self._warm = Warm(self.tree, files, environment, self.folder, covered.seconds)

    def try_change(self, name: str, change: Change, tests: Sequence[str], seconds: float) -> Outcome:
        """Runs tests with a change.

        Args:
            name: The source.
            change: The change.
            tests: The tests, in the order in which they run.
            seconds: How long they take without the change.
        """
        path = self.source(name)
        before = path.read_bytes()
        try:
            self._write(path, change.applied_to(before))
            while self._warm is not None and not change.is_import_time:
                result = self._warm.run([test for test in tests if test not in self._failing], path, change.line)
                if not result.is_tried:
                    break
                if not result.has_failed:
                    return Outcome.SURVIVED
                self._write(path, before)
                if self._passes(self._warm, result.test):
                    return Outcome.TOOK_TOO_LONG if result.is_late else Outcome.NOTICED
                self._write(path, change.applied_to(before))
            return self._run(tests, _START + _SLOWER * seconds)
        finally:
            self._write(path, before)

    def _passes(self, warm: Warm, test: str) -> bool:
        """Whether a test passes without a change in a process that is started already. Some only pass in one of their own."""
        if test not in self._passing | self._failing:
            (self._failing if warm.run([test]).has_failed else self._passing).add(test)
        return test in self._passing

    def _write(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        # compiled sources are known by whole seconds and sizes
        seconds = int(path.stat().st_mtime) + next(self._times)
        os.utime(path, (seconds, seconds))

    def _run(self, tests: Sequence[str], limit: float) -> Outcome:
        chosen = self.folder / "chosen"
        chosen.write_text("\n".join(tests) + "\n")
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.mutation.plugin",
            *files,
        ]
        environment = {**environment_of(self.tree), CHOSEN: str(chosen), "TMPDIR": str(self.folder)}
        with (self.folder / "log").open("wb") as log:
            process: Any = subprocess.Popen(
                command,
                cwd=self.tree,
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                return Outcome.TOOK_TOO_LONG
            finally:
                with suppress(ProcessLookupError):  # also what the tests have started
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if status == 0:
            return Outcome.SURVIVED
        if status < 0 or status in _ALL_TESTS_FAILED:
            return Outcome.NOTICED
        raise RuntimeError(f"pytest ended with {status}:\n{(self.folder / 'log').read_text(errors='replace')[-3000:]}")


def covering_tests(covering: Covering, name: str, source: str, change: Change) -> set[str]:
    """The tests that run what is changed.

    A line that runs when its module is imported counts for the tests of the functions that use it: of a function, if it is a default or
    a decorator; of all functions that name a constant; otherwise of all functions of the module. A function whose result is kept runs in
    few of the tests that it matters to, so those of the functions that call it count. If it has none, as a module of tables,
    all tests in the folder of its package count.
    """
    whole = ast.parse(source)
    functions = [each for each in ast.walk(whole) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
    around = [each for each in functions if each.lineno <= change.line <= (each.end_lineno or 0)]
    cached = [each.name for each in around if any("cache" in ast.unparse(each) for each in each.decorator_list)]
    if not change.is_import_time and not cached:
        # a line in the middle of a statement may not be counted by itself
        statements = [
            each
            for each in ast.walk(whole)
            if isinstance(each, ast.stmt) and each.lineno <= change.line <= _last_line(each)
        ]
        return covering.of(name, [change.line]) or covering.of(name, [max(each.lineno for each in statements)])
    own = [each for each in around if not change.name and change.is_import_time and change.line < each.body[0].lineno]
    names = {change.name, *cached} - {""}
    users = [
        each
        for each in functions
        if each not in around
        and any(
            (isinstance(inside, ast.Name) and inside.id in names)
            or (isinstance(inside, ast.Attribute) and inside.attr in cached)
            for inside in ast.walk(each)
        )
    ]
    lines = [inside.lineno for each in own or users or functions for inside in each.body]
    lines += [inside.lineno for each in users for inside in ast.walk(each) if isinstance(inside, ast.stmt)]
    of_package = f"tests/{name.partition('/')[0]}/"
    return covering.of(name, lines) or {test for test in covering.seconds if test.startswith(of_package)}


def _last_line(statement: ast.stmt) -> int:
    """The last line of a statement without those inside it."""
    body = getattr(statement, "body", None)
    return max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno or statement.lineno


def chosen(covering: Covering, name: str, tests: set[str], limit: float) -> tuple[list[str], float]:
    """Tests in the order in which they run, and how long they take: those of the module's own file first, then the fast ones.

    Args:
        covering: What is known of the tests.
        name: The source.
        tests: The tests.
        limit: How many seconds they may take together. At least one runs.
    """
    stem = Path(name).stem

    def place(test: str) -> tuple[bool, float]:
        seconds = covering.seconds[test]
        return (Path(test.partition("::")[0]).stem != f"test_{stem}" or seconds > _LONG), seconds

    taken: list[str] = []
    together = 0.0
    for test in sorted(sorted(tests), key=place):
        together += covering.seconds[test]
        if taken and together > limit:
            together -= covering.seconds[test]
            break
        taken.append(test)
    return taken, together
