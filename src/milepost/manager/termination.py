"""Catches SIGTERM, the signal by which schedulers announce that they will end a process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

from milepost.errors import warn


class TerminationSignal:
    """Records SIGTERM instead of ending the process, between `install` and `remove`.

    A second signal goes to the handler that was installed before.

    Attributes:
        received: Whether the signal has come.
    """

    def __init__(self) -> None:
        self.received = False
        self._installed = False
        self._previous: Any = None
        self._is_running: Callable[[], bool] = lambda: True

    def install(self, is_running: Callable[[], bool] = lambda: True, who: str = "fit()") -> None:
        """Begins to catch the signal. Python allows this only in the main thread.

        Args:
            is_running: Returns whether the signal is still wanted. If not, the previous handler gets it.
            who: What must run in the main thread, for a warning.
        """
        self.received = False
        self._is_running = is_running
        if self._installed:
            return
        if threading.current_thread() is not threading.main_thread():
            warn(f"on_sigterm has no effect, because {who} does not run in the main thread")
            return
        self._previous = signal.signal(signal.SIGTERM, self._handle)
        self._installed = True

    def remove(self, *, pass_on: bool = False) -> None:
        """Restores the previous handler.

        Args:
            pass_on: Whether to call the previous handler if the signal has come and the handler is a function of the program.
        """
        if not self._installed or threading.current_thread() is not threading.main_thread():
            return
        self._installed = False
        if signal.getsignal(signal.SIGTERM) == self._handle:  # no other handler was installed since
            self._put_back()
        if pass_on and self.received and callable(self._previous) and self._another() is None:
            self._previous(signal.SIGTERM, None)

    def _another(self) -> TerminationSignal | None:
        """The previous handler, if it is a `TerminationSignal`. It gets the signal at the same time."""
        owner = getattr(self._previous, "__self__", None)
        return owner if isinstance(owner, TerminationSignal) else None

    def _put_back(self) -> None:
        another = self._another()
        if (
            another is not None and not another._installed
        ):  # the previous one was removed while this one was installed over it
            another._put_back()
            return
        # None stands for a handler that was not installed from Python, and cannot be put back.
        signal.signal(signal.SIGTERM, signal.SIG_DFL if self._previous is None else self._previous)

    def _handle(self, number: int, frame: Any) -> None:
        # A second signal, or one after `remove`, which can get here if a later handler has restored this one.
        if self.received or not self._installed or not self._is_running():
            self._installed = False
            self._put_back()
            signal.raise_signal(number)
            return
        self.received = True
        another = self._another()
        if another is not None and another._installed:
            another._handle(number, frame)
