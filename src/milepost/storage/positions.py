"""Reads and writes at a position of an open file, from any thread.

Most systems have calls for it: with several buffers (``preadv``, ``pwritev``), or with one (``pread``, ``pwrite``; macOS
before 11 has no others). On Windows a file has one position, which is set before each call, so threads that use a file at
the same time take turns.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Final

from milepost.forks import ForkableLock

MOST_BUFFERS: Final = 1024
"""The largest number of buffers in one write. POSIX allows a system to refuse more (``IOV_MAX``)."""
_turns: Final = tuple(ForkableLock() for _ in range(64))
"""Locks by file descriptor. Some files share a lock, so that one waits for another."""


def read_bytes_at(descriptor: int, length: int, offset: int) -> bytes:
    """Up to ``length`` bytes from ``offset`` on. There may be fewer, even if the file has more."""
    if hasattr(os, "pread"):
        data: bytes = os.pread(descriptor, length, offset)
        return data
    with _turns[descriptor % len(_turns)]:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, length)


def read_at(descriptor: int, view: memoryview, offset: int) -> int:
    """Reads bytes from ``offset`` on into memory. Returns their number, which may be less than the size of the memory."""
    if hasattr(os, "preadv"):
        count: int = os.preadv(descriptor, [view], offset)
        return count
    if hasattr(os, "pread"):
        data = os.pread(descriptor, len(view), offset)
        view[: len(data)] = data
        return len(data)
    with _turns[descriptor % len(_turns)], io.FileIO(descriptor, "rb", closefd=False) as file:
        file.seek(offset)
        return file.readinto(view) or 0


def write_at(descriptor: int, views: Sequence[memoryview], offset: int) -> int:
    """Writes at most `MOST_BUFFERS` buffers from ``offset`` on. Returns the number of bytes, which may end inside a buffer."""
    if hasattr(os, "pwritev"):
        count: int = os.pwritev(descriptor, views, offset)
        return count
    if hasattr(os, "pwrite"):
        one: int = os.pwrite(descriptor, views[0], offset)
        return one
    with _turns[descriptor % len(_turns)]:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, views[0])
