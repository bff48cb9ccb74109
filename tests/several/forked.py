"""Processes that are killed, and what they have written before that.

The processes are forked from one that has imported the framework, and has not used it yet. Each writes what happens, a line of JSON
each, to a file of its own.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from milepost.errors import MilepostError

PATIENCE = 120.0
"""Seconds in which those that live must end: time limits of milepost and of the framework, on a busy machine."""


class Journal:
    """What happens in one process of one launch.

    Args:
        directory: Where the journals are.
        launch: The number of the launch.
        rank: That of the process.
    """

    def __init__(self, directory: Path, launch: int, rank: int) -> None:
        self._file = (directory / f"journal-{launch}-{rank}").open("a")

    def write(self, event: str, **facts: Any) -> None:
        """Adds a line, which no kill of this process can take back."""
        self._file.write(json.dumps({"event": event, **facts}) + "\n")
        self._file.flush()


def journal(directory: Path, launch: int, rank: int) -> list[dict[str, Any]]:
    """The lines of a process that are whole."""
    path = directory / f"journal-{launch}-{rank}"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


class Launch:
    """Forked processes that run one function.

    Args:
        work: Called in each with the number of the process.
        size: How many.
        directory: For journals, and for what the processes print.
        number: Of this launch.
    """

    def __init__(self, work: Callable[[int, Journal], object], size: int, directory: Path, number: int) -> None:
        self.size, self.number, self._directory = size, number, directory
        self._running: dict[int, int] = {}
        self.codes: dict[int, int] = {}
        for rank in range(size):
            child = os.fork()
            if child == 0:
                _be_process(work, rank, directory, number)
            self._running[rank] = child

    def running(self) -> list[int]:
        """The processes that have not ended yet."""
        for rank, child in list(self._running.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                del self._running[rank]
                self.codes[rank] = os.waitstatus_to_exitcode(status)
        return list(self._running)

    def send(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Sends a signal to one that runs."""
        if rank in self.running():
            os.kill(self._running[rank], number)

    def events(self, rank: int) -> list[dict[str, Any]]:
        """What one process has written so far."""
        return journal(self._directory, self.number, rank)

    def end(self, patience: float = PATIENCE) -> list[int]:
        """Waits until all have ended; kills and returns those that have not."""
        until = time.monotonic() + patience
        while self.running() and time.monotonic() < until:
            time.sleep(0.02)
        late = self.running()
        for child in self._running.values():
            os.kill(child, signal.SIGUSR1)  # it prints where it is
        time.sleep(1.0 if late else 0.0)
        for child in self._running.values():
            os.kill(child, signal.SIGKILL)
        while self.running():
            time.sleep(0.02)
        return late

    def printed(self) -> str:
        """The end of what each process has printed."""
        paths = [self._directory / f"printed-{self.number}-{rank}" for rank in range(self.size)]
        return "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in paths if path.exists())


def _be_process(work: Callable[[int, Journal], object], rank: int, directory: Path, number: int) -> None:
    code = 1
    try:
        printed = os.open(directory / f"printed-{number}-{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        journal = Journal(directory, number, rank)
        work(rank, journal)
        code = 0
    except BaseException as error:
        traceback.print_exc()
        if isinstance(error, MilepostError):
            journal.write("error", kind=type(error).__name__)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for thread in threading.enumerate():  # as the interpreter does when it ends
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        os._exit(code)
