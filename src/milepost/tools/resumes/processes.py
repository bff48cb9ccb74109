"""Runs a program, kills it where it is asked to, and starts it again.

A kill is SIGKILL to the process, to those of its group, and to all that record: a launcher gives each of its workers a session of its own. So nothing
is cleaned up. A program that is to be killed right after an event waits there, so that no other step follows. One that is to be killed some time after it
goes on meanwhile. If one process of several is killed, the others are, some time later, if they have not ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from milepost.errors import ArgumentError, StorageError, UnmatchedError
from milepost.tools.resumes.attempt import Attempt, EventReader, Kill, Process
from milepost.tools.resumes.recording import VARIABLE, Task

GRACE: Final = 20.0
"""Seconds in which the other processes of a run may end after one was killed."""
_PAUSE: Final = 0.005
_MOST_ENDING: Final = 1.0
"""Seconds to wait until processes that were killed have ended."""


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
    output, errors = program.home / f"output-{number}", program.home / f"errors-{number}"
    stop_at = None if kill is None or kill.delay is not None else (kill.event, kill.name, kill.rank)
    task = Task(
        str(program.home / f"events-{number}"), os.path.realpath(program.home), str(output), os.getpid(), stop_at
    )
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **program.environment, VARIABLE: json.dumps(task)}
    attempt, reader = Attempt(), EventReader(program.home, number)
    with (
        open(output, "wb") as out,
        open(errors, "wb") as err,
        _started(program, environment, out, err, reader) as process,
    ):
        _wait(process, reader, kill, program, attempt)
        attempt.status = process.wait()
    reader.read()
    reader.give_events(attempt)
    attempt.add_lines(program.home, number, reader)
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


@contextmanager
def _started(
    program: Program, environment: Mapping[str, str], out: Any, err: Any, reader: EventReader
) -> Iterator[subprocess.Popen[bytes]]:
    """A process, which has ended when the block ends, with those that it has started."""
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
        _kill(process, reader)
        process.wait()


def _kill(process: subprocess.Popen[bytes], reader: EventReader) -> None:
    """Kills a process, those that it has started in its group, and all that record."""
    if sys.platform != "win32":
        with suppress(ProcessLookupError, PermissionError):  # all have ended
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        process.kill()
    reader.read()  # which others there are
    others = [each for each in reader.processes.values() if _is_running(each)]
    for each in others:
        _kill_one(each)
    end = time.monotonic() + _MOST_ENDING
    while any(map(_is_running, others)) and time.monotonic() < end:
        time.sleep(_PAUSE)


def _kill_one(process: Process) -> None:
    """Kills a process that records, and those of its group if it leads one."""
    with suppress(ProcessLookupError, PermissionError):  # it has ended
        if sys.platform == "win32":
            os.kill(process.number, signal.SIGTERM)  # this ends it at once there
        elif process.group[0] == process.number:
            os.killpg(process.number, signal.SIGKILL)
        else:
            os.kill(process.number, signal.SIGKILL)


def _is_running(process: Process) -> bool:
    """Whether a process that records runs, and its number is not that of a later process."""
    if sys.platform == "win32":
        return False  # the number tells too little there
    try:
        return (os.getpgid(process.number), os.getsid(process.number)) == process.group
    except (ProcessLookupError, PermissionError):
        return False


def _wait(
    process: subprocess.Popen[bytes], reader: EventReader, kill: Kill | None, program: Program, attempt: Attempt
) -> None:
    """Waits until a program ends, or until the moment to kill it, and kills it."""
    end = None if program.timeout is None else time.monotonic() + program.timeout
    moment: float | None = None
    while True:
        for event, rank in reader.read():
            if event["event"] == "outside":
                raise _outside(event["name"], program)
            if kill is not None and kill.is_after(event, rank):
                moment = time.monotonic() + (kill.delay or 0.0)
        if process.poll() is not None:
            return
        now = time.monotonic()
        if moment is not None and now >= moment:
            if kill is None or kill.rank is None:
                attempt.killed = attempt.killed or kill
                _kill(process, reader)
                return
            attempt.killed = kill
            for each in [each for each in reader.processes.values() if each.rank == kill.rank and _is_running(each)]:
                _kill_one(each)
            kill, moment = None, now + GRACE
        if end is not None and now > end:
            raise UnmatchedError(
                "a process of the program takes too long",
                expected=f"an end within {program.timeout:g} s",
                remedy="let it take fewer steps, or raise the timeout",
            )
        time.sleep(_PAUSE if moment is None else min(_PAUSE, max(0.0, moment - now)))


def _outside(name: str, program: Program) -> ArgumentError:
    return ArgumentError(
        "the program would save outside of the directory of its run, where the two runs would share their checkpoints; "
        "nothing was saved",
        file=name,
        expected=f"a checkpoint below {program.home}",
        remedy=program.remedy,
    )
