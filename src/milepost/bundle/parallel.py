"""Runs the parts of one large transfer on a few threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

THREADS: Final = min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
"""More threads are not faster, because the disk or the memory is the limit."""


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
    lock = threading.Lock()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            for item in _shared(iterator, lock):
                if failures:
                    return
                work(item)
        except BaseException as failure:  # the calling thread raises it
            failures.append(failure)

    helpers: list[threading.Thread] = []
    try:
        for n in range(1, threads):
            helper = threading.Thread(target=run, name=f"milepost-transfer-{n}")
            helper.start()
            helpers.append(helper)
    except (RuntimeError, MemoryError):
        pass  # The system has no more threads, or this process is ending: the existing threads do all the work.
    except BaseException as interrupt:
        failures.append(interrupt)
    run()
    while any(helper.is_alive() for helper in helpers):
        try:
            for helper in helpers:
                helper.join()
        except KeyboardInterrupt as interrupt:
            # The other threads may still use files and memory that the caller will free.
            failures.append(interrupt)
    if failures:
        raise failures[0]


def _shared(iterator: Iterator[T], lock: threading.Lock) -> Iterator[T]:
    while True:
        with lock:
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item
