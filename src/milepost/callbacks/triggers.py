"""When to save: every so many epochs, batches or seconds, and before the process is ended."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from milepost.errors import warn


class Triggers:
    """Says whether a save is due.

    Args:
        every_epochs: Epochs, or None.
        every_steps: Batches, or None.
        every_seconds: Seconds, or None.

    Raises:
        ValueError: One of them is not positive.
    """

    def __init__(self, every_epochs: int | None, every_steps: int | None, every_seconds: float | None) -> None:
        given = {"every_epochs": every_epochs, "every_steps": every_steps, "every_seconds": every_seconds}
        for name, value in given.items():
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be positive or None, not {value}")
        self.every_epochs = every_epochs
        self.every_steps = every_steps
        self.every_seconds = every_seconds
        self.saved(0)

    @property
    def within_epochs(self) -> bool:
        """Whether saves may be due in the middle of an epoch."""
        return self.every_steps is not None or self.every_seconds is not None

    def saved(self, step: int) -> None:
        """Takes note that everything up to batch ``step`` is saved."""
        self._last_step = step
        self._last_time = time.monotonic()

    def after_batch(self, step: int) -> bool:
        """Whether a save is due after so many batches of the whole run."""
        if self.every_steps is not None and step - self._last_step >= self.every_steps:
            return True
        return self.every_seconds is not None and time.monotonic() - self._last_time >= self.every_seconds

    def after_epoch(self, epochs: int, step: int) -> bool:
        """Whether a save is due after so many whole epochs."""
        if self.every_epochs is not None and epochs % self.every_epochs == 0:
            return True
        return self.after_batch(step)


class TerminationSignal:
    """Turns SIGTERM into a request, from `install` to `remove`."""

    def __init__(self) -> None:
        self.received = False
        self._installed = False
        self._previous: Any = None

    def install(self, is_running: Callable[[], bool] = lambda: True) -> None:
        """Begins to catch the signal, which Python allows in the main thread only.

        Args:
            is_running: Whether there is still somebody to whom it matters; the previous handler gets the signal otherwise.
        """
        self.received = False
        self._is_running = is_running
        if self._installed:
            return
        if threading.current_thread() is not threading.main_thread():
            warn("on_sigterm has no effect, because fit() does not run in the main thread")
            return
        self._previous = signal.signal(signal.SIGTERM, self._handle)
        self._installed = True

    def remove(self) -> None:
        """Puts the previous handler back."""
        if self._installed:
            self._installed = False
            if signal.getsignal(signal.SIGTERM) != self._handle:  # somebody else's by now
                return
            # None stands for a handler that was not installed from Python, and cannot be put back.
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._previous is None else self._previous)

    def _handle(self, number: int, frame: Any) -> None:
        if self.received or not self._is_running():  # a second signal, or one after fit() has ended with an exception
            self.remove()
            signal.raise_signal(number)
        self.received = True
