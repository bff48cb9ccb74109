"""Counts of what code does. They are the same on every machine, however busy it is."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any


def most_bytes(action: Callable[[], object]) -> int:
    """The bytes of all buffers and objects that were held at one time, of those that Python and NumPy have allocated in a call."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        action()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def lines_run(action: Callable[[], object]) -> int:
    """How many lines of Python a call runs, each as often as it is run."""
    count = 0

    def note(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += 1
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        action()
    finally:
        sys.settrace(before)
    return count
