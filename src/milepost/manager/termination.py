"""Catches SIGTERM, the signal by which schedulers announce that they will end a process."""

from __future__ import annotations

import signal
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

from milepost.errors import warn
from milepost.forks import register_at_fork


class TerminationSignal:
    """Records SIGTERM instead of ending the process, between `install` and `remove`.

    A second signal goes to the handler that was installed before. A forked child has that handler from the beginning.

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
        if not _is_main_thread():
            warn(f"on_sigterm has no effect, because {who} does not run in the main thread")
            return
        if not self._is_present():  # it stays after `remove` in another thread
            self._previous = signal.getsignal(signal.SIGTERM)
        self._installed = True
        _fork.signals.add(self)
        signal.signal(signal.SIGTERM, self._handle)

    def remove(self, *, pass_on: bool = False) -> None:
        """Restores the previous handler. In another thread than the main one, the next signal does so, and goes to that handler.

        Args:
            pass_on: Whether to call the previous handler if the signal has come and the handler is a function of the program. Python
                calls it in the main thread.
        """
        if not self._installed:
            return
        self._installed = False
        is_wanted = pass_on and self.received and callable(self._previous) and self._another() is None
        if not _is_main_thread():
            if is_wanted and self._is_present():
                signal.raise_signal(signal.SIGTERM)
            return
        if self._is_present():
            self._put_back()
        if is_wanted:
            self._previous(signal.SIGTERM, None)

    def _is_present(self) -> bool:
        """Whether no other handler was installed since."""
        return bool(signal.getsignal(signal.SIGTERM) == self._handle)

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


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class _Fork:
    """A forked child takes no part in the saves of its parent, so SIGTERM ends it as it would without milepost.

    Python forgets a signal that comes to the child before it runs, so the signal is blocked until the handler is removed there.
    """

    def __init__(self) -> None:
        self.signals: weakref.WeakSet[TerminationSignal] = weakref.WeakSet()
        """Those that were installed in this process or its parents."""
        self._masks: dict[int, set[Any]] = {}
        """What was blocked before in each thread that forks."""

    def begin(self) -> None:
        if any(each._installed for each in list(self.signals)):
            self._masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def end(self) -> None:
        mask = self._masks.pop(threading.get_ident(), None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def end_in_child(self) -> None:
        for each in list(self.signals):
            each.remove()
        self.end()


_fork: Final = _Fork()
register_at_fork(before=_fork.begin, after_in_parent=_fork.end, after_in_child=_fork.end_in_child)
