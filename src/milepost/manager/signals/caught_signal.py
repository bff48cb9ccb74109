"""One signal that is recorded instead of ending the process."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any, Final

from milepost.engine.turns import is_saving_anything
from milepost.threads import is_main_thread

SAME_SIGNAL: Final = 3.0
"""Seconds in which a signal that comes again counts as the same: a batch system sends it to each process, and a launcher to those that it has started."""


class CaughtSignal:
    """Records a signal between `install` and `remove`.

    When it comes a second time, it goes to the handler that was installed before, unless it is the same one once more or milepost is saving.

    Args:
        number: The signal.
        told: A function that is called when it comes for the first time.

    Attributes:
        number: The signal.
        received: Whether it has come.
        is_installed: Whether it is caught.
    """

    def __init__(self, number: int, told: Callable[[int], object]) -> None:
        self.number = number
        self.received = self.is_installed = False
        self._told = told
        self._time = 0.0
        self._previous: Any = None
        self._is_running: Callable[[], bool] = lambda: True

    def install(self, is_running: Callable[[], bool]) -> None:
        """Begins to catch the signal. Python allows this only in the main thread.

        Args:
            is_running: Returns whether the signal is still wanted. If not, the previous handler gets it.
        """
        self.received = False
        self._is_running = is_running
        if not self._is_present():  # it stays after `remove` in another thread
            self._previous = signal.getsignal(self.number)
        self.is_installed = True
        signal.signal(self.number, self._handle)

    def remove(self, *, pass_on: bool = False) -> None:
        """Restores the previous handler. In another thread than the main one, the next signal does so, and goes to that handler.

        Args:
            pass_on: Whether to call the previous handler if the signal has come and the handler is a function of the program. Python
                calls it in the main thread.
        """
        if not self.is_installed:
            return
        self.is_installed = False
        is_wanted = pass_on and self.received and callable(self._previous) and self._another() is None
        if not is_main_thread():
            if is_wanted and self._is_present():
                signal.raise_signal(self.number)
            return
        if self._is_present():
            self._put_back()
        if is_wanted:
            self._previous(self.number, None)

    def _is_present(self) -> bool:
        """Whether no other handler was installed since."""
        return bool(signal.getsignal(self.number) == self._handle)

    def _another(self) -> CaughtSignal | None:
        """The previous handler, if it is that of a `CaughtSignal`. It gets the signal at the same time."""
        owner = getattr(self._previous, "__self__", None)
        return owner if isinstance(owner, CaughtSignal) else None

    def _put_back(self) -> None:
        another = self._another()
        if another is not None and not another.is_installed:  # it was removed while this one was installed over it
            another._put_back()
            return
        # None stands for a handler that was not installed from Python, and cannot be put back.
        signal.signal(self.number, signal.SIG_DFL if self._previous is None else self._previous)

    def _handle(self, number: int, frame: Any) -> None:
        # One after `remove` can get here if a later handler has restored this one.
        if self.is_installed and self._is_running():
            if not self.received:
                self._receive(number, frame)
                return
            if time.monotonic() - self._time < SAME_SIGNAL or is_saving_anything():
                return
        self.is_installed = False
        self._put_back()
        signal.raise_signal(number)

    def _receive(self, number: int, frame: Any) -> None:
        self.received = True
        self._time = time.monotonic()
        self._told(number)
        another = self._another()
        if another is not None and another.is_installed:
            another._handle(number, frame)
