"""Ends a process that has not ended by itself some time after a signal."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress


class Deadline:
    """A thread that ends the process some seconds after `begin`, unless `end` comes first.

    A step or a save that hangs does not keep it from that. Checkpoints are not affected: a save that is cut short leaves the previous one.

    Args:
        seconds: How long after `begin`.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._number = 0
        self._begun, self._ended = threading.Lock(), threading.Lock()
        self._process = 0

    def stand_by(self) -> None:
        """Starts the thread. A signal handler cannot do that: the thread that it interrupts may be starting one."""
        self._begun, self._ended = threading.Lock(), threading.Lock()
        self._process = os.getpid()
        self._begun.acquire()
        self._ended.acquire()
        threading.Thread(
            target=self._watch, args=(self._begun, self._ended), name="milepost-deadline", daemon=True
        ).start()

    def begin(self, number: int) -> None:
        """Begins to count the seconds. It may be called in a signal handler.

        Args:
            number: The signal that has come.
        """
        if not self._number:
            self._number = number
            self._free(self._begun)

    def end(self) -> None:
        """Ends the thread."""
        self._free(self._ended)
        self._free(self._begun)
        self._number = 0

    def _free(self, lock: threading.Lock) -> None:
        if self._process == os.getpid():
            with suppress(RuntimeError):  # it is free
                lock.release()

    def _watch(self, begun: threading.Lock, ended: threading.Lock) -> None:
        begun.acquire()
        if not ended.acquire(timeout=self._seconds):
            name = signal.Signals(self._number).name
            text = f"milepost: the process ends now, because it has not ended in the {self._seconds:g} seconds since {name}\n"
            with suppress(OSError):
                os.write(2, text.encode())
            os._exit(128 + self._number)
