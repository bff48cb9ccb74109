"""Runs a program in a process of its own, kills it where it is asked to, and starts it again.

A kill is SIGKILL to the process and to those that it has started, so nothing is cleaned up. A program that is to be killed right after an
event waits there, so that no other step follows. One that is to be killed some time after it goes on meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from milepost.errors import ArgumentError, StorageError, UnmatchedError
from milepost.tools.resumes.recording import VARIABLE

_PAUSE: Final = 0.005
_LAST_LINES: Final = 12


class Program(NamedTuple):
    """How a program is started.

    Attributes:
        command: Its words.
        working: The directory in which it runs.
        home: The directory for its events and its output.
        environment: Variables of the environment beside those of this process.
        remedy: What the user can do if it saves elsewhere than below its home.
        timeout: The most seconds of one process.
    """

    command: Sequence[str]
    working: Path
    home: Path
    environment: Mapping[str, str]
    remedy: str
    timeout: float | None = None


class Kill(NamedTuple):
    """When a process is killed.

    Attributes:
        event: The kind of the event.
        name: The end of its name.
        delay: Seconds after it; None if nothing is to follow it.
        text: When that is, for people.
    """

    event: str
    name: str
    delay: float | None
    text: str


@dataclass
class Attempt:
    """One process of a program.

    Attributes:
        events: What it has recorded.
        output: The lines that it has written to its output.
        errors: The last lines of its error output.
        status: Its exit status.
        killed: The kill that has ended it, or None.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    errors: str = ""
    status: int = 0
    killed: Kill | None = None

    def of(self, event: str) -> Iterator[dict[str, Any]]:
        """The events of a kind."""
        return (each for each in self.events if each["event"] == event)


def run_once(program: Program, number: int, kill: Kill | None = None) -> Attempt:
    """Runs a program in one process.

    Args:
        program: The program.
        number: The number of the process, for the names of files.
        kill: When to kill it. It may end before.

    Raises:
        UnmatchedError: It takes too long.
        ArgumentError: It would save elsewhere than below its home.
        StorageError: It cannot be started.
    """
    events = program.home / f"events-{number}"
    stop_at = None if kill is None or kill.delay is not None else (kill.event, kill.name)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **program.environment}
    environment[VARIABLE] = json.dumps([str(events), os.path.realpath(program.home), stop_at])
    output, errors = program.home / f"output-{number}", program.home / f"errors-{number}"
    attempt = Attempt()
    with open(output, "wb") as out, open(errors, "wb") as err, _started(program, environment, out, err) as process:
        reader = _EventReader(events, attempt)
        _wait(process, reader, kill, program, attempt)
        attempt.status = process.wait()
    reader.read()
    text = output.read_text(errors="backslashreplace")
    if attempt.killed is not None:
        text = text[: text.rfind("\n") + 1]  # the last line may be incomplete
    attempt.output = text.splitlines()
    attempt.errors = "\n".join(errors.read_text(errors="backslashreplace").splitlines()[-_LAST_LINES:])
    return attempt


def run_killed(program: Program, kills: Sequence[Kill]) -> list[Attempt]:
    """Runs a program, kills it, and starts it again until it ends by itself.

    Raises:
        ArgumentError: It ended before it could be killed.
        UnmatchedError: It takes too long.
        StorageError: It cannot be started.
    """
    attempts = []
    for number, kill in enumerate([*kills, None]):
        attempt = run_once(program, number, kill)
        attempts.append(attempt)
        if kill is not None and attempt.killed is None:
            if attempt.status:
                break  # it has failed, which is what is reported
            raise ArgumentError(
                f"the program ended before it could be killed {kill.text}",
                remedy="kill it earlier, or let it take more steps",
            )
    return attempts


class _EventReader:
    """Reads the events of a running process. The last line may be incomplete."""

    def __init__(self, path: Path, attempt: Attempt) -> None:
        self._path = path
        self._attempt = attempt
        self._position = 0

    def read(self) -> list[dict[str, Any]]:
        """The events since the last call."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        events = [json.loads(line) for line in whole.splitlines()]
        self._attempt.events += events
        return events


@contextmanager
def _started(program: Program, environment: Mapping[str, str], out: Any, err: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process, which has ended when the block ends."""
    try:
        process = subprocess.Popen(
            program.command,
            cwd=program.working,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    except OSError as error:
        raise StorageError(
            "cannot start the program", errno=error.errno, file=program.command[0], remedy="correct the command"
        ) from error
    try:
        yield process
    finally:
        _kill(process)
        process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and those that it has started in its group."""
    if sys.platform != "win32":
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # all have ended
            pass
    elif process.poll() is None:
        process.kill()


def _wait(
    process: subprocess.Popen[bytes], reader: _EventReader, kill: Kill | None, program: Program, attempt: Attempt
) -> None:
    """Waits until a process ends, or until the moment to kill it, and kills it."""
    end = None if program.timeout is None else time.monotonic() + program.timeout
    moment: float | None = None
    while True:
        for event in reader.read():
            if event["event"] == "outside":
                raise ArgumentError(
                    "the program would save outside of the directory of its run, where the two runs would share their checkpoints; "
                    "nothing was saved",
                    file=event["name"],
                    expected=f"a checkpoint below {program.home}",
                    remedy=program.remedy,
                )
            if kill is not None and event["event"] == kill.event and f"/{event['name']}".endswith(f"/{kill.name}"):
                moment = time.monotonic() + (kill.delay or 0.0)
        now = time.monotonic()
        if moment is not None and now >= moment and process.poll() is None:
            attempt.killed = kill
            _kill(process)
            return
        if process.poll() is not None:
            return
        if end is not None and now > end:
            raise UnmatchedError(
                "a process of the program takes too long",
                expected=f"an end within {program.timeout:g} s",
                remedy="let it take fewer steps, or raise the timeout",
            )
        time.sleep(_PAUSE if moment is None else min(_PAUSE, max(0.0, moment - now)))
