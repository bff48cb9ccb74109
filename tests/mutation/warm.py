"""A process that has imported everything and collected all tests, and runs chosen ones in forked children.

To start Python and pytest takes longer than most tests. A child has the changed function because its code is replaced there. So only changes
inside functions can be tried in this way, and only on systems that can fork.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import IO, Any, Final, NamedTuple

import pytest

PIPES: Final = "MILEPOST_PIPES"
"""The variable of the environment with the descriptors of the requests and of the replies."""
_START: Final = 600.0
"""Seconds that the collection of all tests may take."""
_LONGEST: Final = 10.0
"""Seconds that any test may take."""
_SLOWER: Final = 10.0
"""How many times as long as before a test may take."""
_MEMORY: Final = 12 << 30
"""The most memory of a child. Some changes allocate without end."""


class Result(NamedTuple):
    """What became of the tests.

    Attributes:
        test: The last test that ran, which is the one that failed or took too long, if one did.
        has_failed: Whether it failed.
        is_late: Whether it took too long.
        is_tried: Whether the function could be replaced.
    """

    test: str
    has_failed: bool
    is_late: bool
    is_tried: bool


class Warm:
    """The process, seen from outside."""

    def __init__(
        self,
        tree: Path,
        files: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        seconds: Mapping[str, float],
    ) -> None:
        self._seconds = seconds
        self._buffer = b""
        theirs, self._requests = os.pipe()
        self._replies, their_replies = os.pipe()
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.plugin"]
        with (folder / "warm-log").open("wb") as log:
            self._process: Any = subprocess.Popen(
                [*command, f"--basetemp={folder / 'base'}", *files],
                cwd=tree,
                env={**environment, PIPES: f"{theirs},{their_replies}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs, their_replies),
            )
        os.close(theirs)
        os.close(their_replies)
        self._reply(_START)  # what it has not imported yet must not be changed

    def close(self) -> None:
        """Ends the process."""
        os.close(self._requests)
        os.close(self._replies)
        self._process.wait()

    def run(self, tests: Sequence[str], source: Path | None = None, line: int = 0) -> Result:
        """Runs tests, until one fails, in a child that has the present code of the function around a line of a source."""
        request = {"tests": list(tests), "source": source and str(source), "line": line}
        os.write(self._requests, json.dumps(request).encode() + b"\n")
        child, test, failed, late, limit = 0, "", False, False, 120.0
        while True:
            kind, _, value = (self._reply(limit) or "late ").partition(" ")
            if kind == "late":
                late, limit = True, 120.0
            elif kind == "child":
                child = int(value)
            elif kind == "test":
                test, limit = value, _LONGEST + _SLOWER * self._seconds.get(value, 0.0)
            elif kind == "failed":
                failed = True
            if kind in ("late", "failed") and child:
                with suppress(ProcessLookupError):  # also what the test has started
                    os.killpg(child, signal.SIGKILL)
            elif kind == "end":
                return Result(test, failed or value != "0", late, value != str(_NOT_TRIED))

    def _reply(self, seconds: float) -> str:
        """The next line of the process, or nothing if it takes too long."""
        while b"\n" not in self._buffer:
            if not select.select([self._replies], [], [], seconds)[0]:
                return ""
            read = os.read(self._replies, 1 << 16)
            if not read:
                raise RuntimeError("pytest has ended")
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()


_NOT_TRIED: Final = 99


def serve(session: pytest.Session) -> None:
    """Runs tests as it is asked to, until nobody is there to ask."""
    requests_from, replies_to = map(int, os.environ.pop(PIPES).split(","))
    items = {item.nodeid: item for item in session.items}
    with open(requests_from, encoding="utf-8") as requests, open(replies_to, "w", encoding="utf-8") as replies:
        _tell(replies, "ready")
        for line in requests:
            child = os.fork()
            if not child:
                status = 1
                try:
                    os.setsid()
                    status = _run(session, items, json.loads(line), replies)
                finally:
                    os._exit(status)
            _tell(replies, f"child {child}")
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            _tell(replies, f"end {status}")


def _tell(replies: IO[str], line: str) -> None:
    replies.write(f"{line}\n")
    replies.flush()


def _run(session: pytest.Session, items: Mapping[str, pytest.Item], request: Any, replies: IO[str]) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    if request["source"] and not _replace(Path(request["source"]), request["line"]):
        return _NOT_TRIED
    session.items = [items[test] for test in request["tests"] if test in items]
    for number, item in enumerate(session.items):
        _tell(replies, f"test {item.nodeid}")
        following = session.items[number + 1] if number + 1 < len(session.items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            _tell(replies, "failed ")
            return 1
    return 0


def _replace(source: Path, line: int) -> bool:
    """Gives a function the code that its source has now. Returns whether that is possible."""
    text = source.read_text(encoding="utf-8")
    new = _outermost(compile(text, str(source), "exec", dont_inherit=True), line)
    old = [
        each
        for each in gc.get_objects()
        if isinstance(each, FunctionType)
        and (each.__code__.co_filename, each.__code__.co_firstlineno) == (str(source), new and new.co_firstlineno)
        and each.__code__.co_name == (new and new.co_name)
    ]
    if new is None or len(old) != 1 or old[0].__code__.co_freevars != new.co_freevars:
        return False
    old[0].__code__ = new
    return True


def _outermost(module: CodeType, line: int) -> CodeType | None:
    """The code of the outermost function around a line."""
    functions = _functions_of(module)
    return max(
        (each for each in functions if each.co_firstlineno <= line), key=lambda each: each.co_firstlineno, default=None
    )


def _functions_of(code: CodeType) -> list[CodeType]:
    """The functions of a module and its classes, without those inside functions, and without lambdas."""
    found = []
    for each in code.co_consts:
        if isinstance(each, CodeType):
            is_class = not each.co_flags & 0x02  # its names are not local variables
            found += _functions_of(each) if is_class else [each] if each.co_name.isidentifier() else []
    return found
