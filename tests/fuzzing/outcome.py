"""What must hold of every input: a result or one of milepost's errors, in time and memory in proportion to its size."""

from __future__ import annotations

import time
import tracemalloc
import warnings
from collections.abc import Callable

from milepost.errors import MilepostError, MilepostWarning

SECONDS = 2.0
"""Of the processor, for an input of up to `LONGEST` bytes."""
MEMORY = 64 << 20
LONGEST = 1 << 14


class TooMuchError(AssertionError):
    """An input took more time or memory than it may."""


def attempt(act: Callable[[], object]) -> bool:
    """Whether something succeeds. It may raise one of milepost's errors; any other error is a fault, and is raised."""
    try:
        act()
    except MilepostError:
        return False
    return True


def check(target: Callable[[bytes], object], data: bytes, *, memory: bool = False) -> None:
    """Tries one input.

    Args:
        target: What reads it.
        data: The input.
        memory: Whether to measure the memory too, which takes several times as long.

    Raises:
        TooMuchError: It took more than it may.
        Exception: What no reader may raise; warnings of others than milepost count.
    """
    if memory:
        tracemalloc.start()
    begun = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", MilepostWarning)
            attempt(lambda: target(data))
        used = time.process_time() - begun
        most = tracemalloc.get_traced_memory()[1] if memory else 0
    finally:
        if memory:
            tracemalloc.stop()
    if used > SECONDS * (4 if memory else 1):
        raise TooMuchError(f"{used:.1f} seconds of the processor for {len(data)} bytes")
    if most > MEMORY:
        raise TooMuchError(f"{most >> 20} MiB of memory for {len(data)} bytes")
