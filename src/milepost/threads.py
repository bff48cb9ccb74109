"""Calls on threads of their own, which Ctrl-C cannot break.

Ctrl-C may come at any line of the thread that waits. A `Thread.join` that it interrupts takes a running thread for one that has ended,
and an event or a condition of `threading` may keep its lock, so that nobody can wait or tell any more. So a call says itself when it has
ended, and whoever waits for it waits for a plain lock. `Thread.start` waits for an event, so a thread of a lower level does that.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import Final

WAIT: Final = 300.0
"""Seconds after which one thread no longer waits for another one, if no option says otherwise."""
SLICE: Final = 0.1
"""Seconds after which a wait looks again. Some systems deliver no signal meanwhile, and a wait that was interrupted may have kept the lock."""


class ThreadCall:
    """One call of a function on a thread of its own.

    Args:
        work: The function. It raises no error.
        name: The name of the thread.
        daemon: Whether the process may end before the call.

    Attributes:
        thread: The identity of the thread, once the call has begun.

    Example:
        >>> call = ThreadCall(lambda: print("done"), "example")
        >>> call.start()
        >>> has_waited = call.wait()
        done
    """

    def __init__(self, work: Callable[[], object], name: str, *, daemon: bool = False) -> None:
        self.thread: int | None = None
        self._work = work
        self._name = name
        self._daemon = daemon
        self._begins: dict[None, bool] = {}
        """Whether the call takes place, once that is decided. The first who decides it does so in one step."""
        self._has_ended = False
        self._running = threading.Lock()
        self._running.acquire()

    @property
    def has_ended(self) -> bool:
        """Whether the call has ended, or does not take place."""
        return self._has_ended or self._begins.get(None) is False

    def start(self) -> None:
        """Starts the thread.

        Raises:
            RuntimeError: The system cannot start a thread; or a ``MemoryError``. The call does not take place.
        """
        try:
            _thread.start_new_thread(self._start, ())
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> bool:
        """Keeps the call from taking place, unless it has begun. Returns whether it does not take place."""
        return not self._begins.setdefault(None, False)

    def wait(self, goes_on: Callable[[], bool] | None = None) -> bool:
        """Waits until the call has ended, or is given up. Returns whether it had not ended before.

        Args:
            goes_on: Asked again and again whether to wait further; None waits for as long as it takes.
        """
        has_waited = False
        while not self.has_ended and (goes_on is None or goes_on()):
            has_waited = True
            if self._running.acquire(timeout=SLICE):
                self._running.release()
        return has_waited

    def _start(self) -> None:
        try:
            threading.Thread(target=self._run, name=self._name, daemon=self._daemon).start()
        except (RuntimeError, MemoryError):  # the system has no second thread
            self._run()

    def _run(self) -> None:
        if not self._begins.setdefault(None, True):
            return
        self.thread = threading.get_ident()
        work, self._work = self._work, _nothing
        try:
            work()
        finally:
            self._has_ended = True
            self._running.release()


def _nothing() -> None:
    """Takes the place of a function, so that what it refers to is not kept."""


def is_main_thread() -> bool:
    """Whether the caller is in the main thread, in which alone Python installs handlers of signals."""
    return threading.current_thread() is threading.main_thread()
