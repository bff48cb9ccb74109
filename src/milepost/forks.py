"""Functions to call when this process forks, and locks that a forked child can use.

Windows does not fork processes. There the functions are never called, and the locks are ordinary ones.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Final


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


class ForkableLock:
    """A re-entrant lock that is free in a forked child if another thread held it.

    A forked child has only the thread that forked, so an ordinary lock that another thread held would never become free. A lock
    that the forking thread holds stays held.

    Example:
        >>> lock = ForkableLock()
        >>> with lock, lock:
        ...     pass
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    def _after_fork(self) -> None:
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock = threading.RLock()


_locks: Final[weakref.WeakSet[ForkableLock]] = weakref.WeakSet()


def _free_in_child() -> None:
    for lock in list(_locks):
        lock._after_fork()


register_at_fork(after_in_child=_free_in_child)
