"""Tells a function how many bytes are read and written, for example for a progress bar.

Each function that moves bytes checks once in each call whether there is such a function. Threads that it starts count
for their caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Count = Callable[[int], object]
"""A function that is called with a number of bytes after they were read or written, from any thread."""

_present: ContextVar[Count | None] = ContextVar("milepost_counting", default=None)


@contextmanager
def counted_by(count: Count | None) -> Iterator[None]:
    """Calls a function with the number of bytes of everything that this thread reads and writes in the body of the ``with`` block.

    Args:
        count: The function; None for none.

    Example:
        >>> from milepost.bundle import BundleWriter
        >>> from milepost.storage import MemoryStorage
        >>> writer, counted = BundleWriter(alignment=1), []
        >>> writer.add("x", [1.0, 2.0])
        >>> with counted_by(counted.append), MemoryStorage().create("x") as file:
        ...     writer.write_shard(0, file)
        >>> sum(counted)
        16
    """
    token = _present.set(count)
    try:
        yield
    finally:
        _present.reset(token)


def counter() -> Count | None:
    """The function that counts what this thread reads and writes, or None."""
    return _present.get()
