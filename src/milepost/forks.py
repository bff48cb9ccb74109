"""Functions to call when this process forks, and locks that a forked child can use.

Windows does not fork processes. There the functions are never called, and the locks are ordinary ones.
"""

from __future__ import annotations

import _thread
import os
import weakref
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol


def _nothing() -> None:
    pass


def register_at_fork(
    *,
    before: Callable[[], object] = _nothing,
    after_in_parent: Callable[[], object] = _nothing,
    after_in_child: Callable[[], object] = _nothing,
) -> None:
    """Registers functions to call when this process forks, as `os.register_at_fork` does; on Windows, does nothing."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)


class ForkableLock(_thread.RLock):  # type: ignore[misc]  # final in the annotations, not in Python
    """A re-entrant lock that is free in a forked child if another thread held it, and free when its ``with`` block is left.

    A forked child has only the thread that forked, so an ordinary lock that another thread held would never become free. A lock
    that the forking thread holds stays held.

    Ctrl-C may come before the first statement of a block, and between its last one and its end. Python does not call what ends the
    block then. So what ends it is an object of its own, and the lock is released with that object at the latest.

    Example:
        >>> lock = ForkableLock()
        >>> with lock, lock:
        ...     pass
    """

    is_owned: Callable[..., bool] = _thread.RLock._is_owned  # type: ignore[attr-defined]  # what conditions of `threading` call
    """Whether this thread holds it."""

    def __init__(self) -> None:
        super().__init__()
        tell_of_forks(self)

    def give_back(self) -> None:
        """Releases it as often as this thread has acquired it, which may be not at all."""
        while self.is_owned():
            self.release()

    @property
    def __exit__(self) -> Callable[..., object]:  # type: ignore[override]  # a property, so that each block has its own
        if self.is_owned():  # the outermost block of this thread gives it back
            return partial(_thread.RLock.__exit__, self)
        return _Release(_thread.RLock.__exit__, self)

    def after_fork(self) -> None:
        """Frees it, if a thread held it that this child does not have."""
        if self.acquire(blocking=False):
            self.release()
        else:
            self._at_fork_reinit()  # type: ignore[attr-defined]  # what the locks of `threading` do


class _Release(partial[object]):
    """Ends a block that holds a lock. Python asks for it before it acquires the lock."""

    def __del__(self) -> None:
        (lock,) = self.args
        if lock.is_owned():
            lock.give_back()


class Forked(Protocol):
    """An object that is told in a forked child that it is in one."""

    def after_fork(self) -> None: ...


_told: Final[weakref.WeakSet[Forked]] = weakref.WeakSet()


def tell_of_forks(obj: Forked) -> None:
    """Has ``after_fork`` of an object called in each forked child, as long as the object lives."""
    _told.add(obj)


def _tell_in_child() -> None:
    for each in list(_told):
        each.after_fork()


register_at_fork(after_in_child=_tell_in_child)
