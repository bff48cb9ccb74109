"""Functions to call when this process forks, and locks that a forked child can use.

Windows does not fork processes. There the functions are never called, and the locks are ordinary ones.
"""

from __future__ import annotations

import _thread
import os
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


class ForkableLock(_thread.RLock):  # type: ignore[misc]  # final in the annotations, not in Python
    """A re-entrant lock that is free in a forked child if another thread held it.

    A forked child has only the thread that forked, so an ordinary lock that another thread held would never become free. A lock
    that the forking thread holds stays held.

    Example:
        >>> lock = ForkableLock()
        >>> with lock, lock:
        ...     pass
    """

    is_owned: Callable[..., bool] = _thread.RLock._is_owned  # type: ignore[attr-defined]  # what conditions of `threading` call
    """Whether this thread holds it."""

    def __init__(self) -> None:
        super().__init__()
        _locks.add(self)

    def give_back(self) -> None:
        """Releases it as often as this thread has acquired it, which may be not at all.

        A block that Ctrl-C may end at any line calls this in two ``finally`` clauses, one around the other, because Ctrl-C may also come
        between the end of the block and the call.
        """
        while self.is_owned():
            self.release()

    def _after_fork(self) -> None:
        if self.acquire(blocking=False):
            self.release()
        else:
            self._at_fork_reinit()  # type: ignore[attr-defined]  # what the locks of `threading` do


_locks: Final[weakref.WeakSet[ForkableLock]] = weakref.WeakSet()


def _free_in_child() -> None:
    for lock in list(_locks):
        lock._after_fork()


register_at_fork(after_in_child=_free_in_child)
