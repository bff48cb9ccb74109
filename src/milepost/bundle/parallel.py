"""Runs the parts of one large transfer on a few threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from milepost.forks import ForkableLock
from milepost.threads import ThreadCall

T = TypeVar("T")

THREADS: Final = min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
"""More threads are not faster, because the disk or the memory is the limit."""

_NO_MORE: Final = object()


def for_each(work: Callable[[T], None], items: Iterable[T], *, threads: int = THREADS) -> None:
    """Calls ``work`` for each item, on this thread and others. Items are taken in order, one at a time.

    If the system has too few threads, fewer are used. After a failure no more items are begun. The error is raised when the
    running calls have ended.

    Args:
        work: The function.
        items: Its arguments. The iterator is never used by two threads at once.
        threads: The number of threads, this one included.
    """
    if threads <= 1:
        for item in items:
            work(item)
        return
    iterator = iter(items)
    lock = ForkableLock()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not failures:
                item = _next(iterator, lock)
                if item is _NO_MORE:
                    return
                work(item)  # type: ignore[arg-type]  # any other object is an item
        except BaseException as failure:  # the calling thread raises it
            failures.append(failure)

    daemon = threading.current_thread().daemon  # then the process may end before its helpers, too
    helpers = [ThreadCall(run, f"milepost-transfer-{n}", daemon=daemon) for n in range(1, threads)]
    try:
        try:
            with suppress(RuntimeError, MemoryError):
                # If the system has no more threads, or this process is ending, the existing threads do all the work.
                for helper in helpers:
                    helper.start()
            run()
        except BaseException as interrupt:
            failures.append(interrupt)
        finally:
            _wait(helpers, failures)
    finally:  # Ctrl-C may have come before the line above
        _wait(helpers, failures)
    if failures:
        raise failures[0]


def _wait(helpers: Sequence[ThreadCall], failures: list[BaseException]) -> None:
    """Waits for threads that may still use files and memory that the caller will free."""
    while not all(helper.has_ended for helper in helpers):
        try:
            for helper in helpers:
                helper.give_up()
                helper.wait()
        except KeyboardInterrupt as interrupt:
            failures.append(interrupt)


def _next(iterator: Iterator[T], lock: ForkableLock) -> T | object:
    """The next item, or `_NO_MORE`."""
    with lock:
        return next(iterator, _NO_MORE)
