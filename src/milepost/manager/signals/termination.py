"""Catches SIGTERM, by which schedulers announce that they will end a process, and other signals that mean the same."""

from __future__ import annotations

import signal
import threading
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from milepost.engine.arguments import wrong
from milepost.errors import warn
from milepost.forks import register_at_fork
from milepost.manager.signals.caught_signal import CaughtSignal
from milepost.manager.signals.deadline import Deadline
from milepost.threads import is_main_thread

Signals = int | Collection[int] | None
"""What ``on_signal`` accepts."""
_NEVER_CAUGHT: Final = ("SIGKILL", "SIGSTOP")


def termination_signal(on_sigterm: bool, on_signal: Signals, grace_seconds: float | None) -> TerminationSignal | None:
    """The signals that the arguments of a manager or a trainer's run ask for, or None for none.

    Args:
        on_sigterm: Whether SIGTERM is one of them.
        on_signal: Others.
        grace_seconds: Seconds after which the process ends, or None.

    Raises:
        UnsupportedError: ``on_signal`` is no signal that can be caught, or ``grace_seconds`` is not a number greater than 0.
    """
    numbers = [signal.SIGTERM] if on_sigterm else []
    try:
        numbers += [signal.Signals(each) for each in ([] if on_signal is None else _listed(on_signal))]
    except (TypeError, ValueError):
        raise _wrong_signal(on_signal) from None
    if any(each.name in _NEVER_CAUGHT for each in numbers):
        raise _wrong_signal(on_signal)
    is_number = isinstance(grace_seconds, (int, float)) and not isinstance(grace_seconds, bool)
    if grace_seconds is not None and not (is_number and grace_seconds > 0):
        raise wrong("grace_seconds", grace_seconds, "a number of seconds greater than 0, or None")
    if grace_seconds is not None and not numbers:
        raise wrong(
            "grace_seconds",
            grace_seconds,
            "None, if no signal is caught",
            "pass on_sigterm=True, or on_signal, with it",
        )
    return TerminationSignal(dict.fromkeys(numbers), grace_seconds) if numbers else None


def _listed(on_signal: int | Collection[int]) -> Collection[int]:
    return [on_signal] if isinstance(on_signal, int) else on_signal


def _wrong_signal(on_signal: Any) -> Exception:
    return wrong("on_signal", on_signal, "a signal that can be caught, such as signal.SIGUSR1, or several in a list")


class TerminationSignal:
    """Records signals instead of ending the process, between `install` and `remove`.

    The same signal a second time goes to the handler that was installed before. A forked child has that handler from the beginning.

    Args:
        numbers: The signals.
        grace_seconds: Seconds from the first signal on, after which the process ends even within a save; None for no limit.
    """

    def __init__(self, numbers: Iterable[int] = (signal.SIGTERM,), grace_seconds: float | None = None) -> None:
        self._deadline = None if grace_seconds is None else Deadline(grace_seconds)
        self._caught = [CaughtSignal(number, self._begin_deadline) for number in numbers]

    @property
    def received(self) -> bool:
        """Whether one of the signals has come."""
        return any(each.received for each in self._caught)

    @property
    def numbers(self) -> list[int]:
        """The signals that are caught now."""
        return [each.number for each in self._caught if each.is_installed]

    def install(self, is_running: Callable[[], bool] = lambda: True, who: str = "fit()") -> None:
        """Begins to catch the signals, unless it has begun. Python allows this only in the main thread.

        Args:
            is_running: Returns whether the signals are still wanted. If not, the previous handlers get them.
            who: What must run in the main thread, for a warning.
        """
        if self.numbers:
            return
        if not is_main_thread():
            names = ", ".join(signal.Signals(each.number).name for each in self._caught)
            warn(f"{names} will not be caught, because {who} does not run in the main thread")
            return
        _fork.signals.add(self)
        if self._deadline is not None:
            self._deadline.stand_by()
        for each in self._caught:
            each.install(is_running)

    def remove(self, *, pass_on: bool = False) -> None:
        """Restores the previous handlers. In another thread than the main one, the next signal does so, and goes to that handler.

        Args:
            pass_on: Whether to call the previous handler of a signal that has come, if it is a function of the program. Python calls
                it in the main thread.
        """
        if self._deadline is not None:
            self._deadline.end()
        for each in self._caught:
            each.remove(pass_on=pass_on)

    def _begin_deadline(self, number: int) -> None:
        if self._deadline is not None:
            self._deadline.begin(number)


class _Fork:
    """A forked child takes no part in the saves of its parent, so a signal ends it as it would without milepost.

    Python forgets a signal that comes to the child before it runs, so the signal is blocked until the handler is removed there.
    """

    def __init__(self) -> None:
        self.signals: weakref.WeakSet[TerminationSignal] = weakref.WeakSet()
        """Those that were installed in this process or its parents."""
        self._masks: dict[int, set[Any]] = {}
        """What was blocked before in each thread that forks."""

    def begin(self) -> None:
        numbers = {number for each in list(self.signals) for number in each.numbers}
        if numbers:
            self._masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

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
