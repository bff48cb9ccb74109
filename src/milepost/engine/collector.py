"""Keeping the garbage collector out of loops that only build."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from milepost.forks import ForkableLock, register_at_fork

_lock: Final = ForkableLock()
_inside: Final[list[int]] = []
"""The threads that pause it, each as often as it does."""
_resume: Final[list[bool]] = [False]
"""Whether it ran before the first of them paused it."""


@contextmanager
def collection_paused() -> Iterator[None]:
    """Lets no collection begin inside.

    A walk over a large graph makes hundreds of thousands of objects and no garbage, and each collection looks at all of
    them again: a third of the time at 20,000 variables, two thirds at 200,000.
    """
    with _lock:
        if not _inside:
            _resume[0] = gc.isenabled()
            gc.disable()
        _inside.append(threading.get_ident())
    try:
        yield
    finally:
        with _lock:
            _inside.remove(threading.get_ident())
            _resume_if_last()


def _resume_if_last() -> None:
    if not _inside and _resume[0]:
        gc.enable()


def _resume_in_child() -> None:
    """A forked child has none of the other threads, such as one that saves, that would let collections begin again."""
    if _inside:
        _inside[:] = [thread for thread in _inside if thread == threading.get_ident()]
        _resume_if_last()


register_at_fork(after_in_child=_resume_in_child)
