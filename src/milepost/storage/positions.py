"""Reading and writing at a position of an open file, from any thread.

Most systems have calls for it: with several buffers (``preadv``, ``pwritev``), or with one (``pread``, ``pwrite``; macOS
before 11 has no others). On Windows a file has one position, which is set before each call, so those that use a file at the
same time take turns.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Sequence
from typing import Final

MOST_BUFFERS: Final = 1024
"""How many a write takes at once; POSIX lets a system refuse more (``IOV_MAX``)."""
_turns: Final = tuple(threading.Lock() for _ in range(64))
"""A file's turn is that of its descriptor. Some files share one, which only makes them wait."""


def read_bytes_at(descriptor: int, length: int, offset: int) -> bytes:
    """Up to ``length`` bytes from ``offset`` on; fewer at the end of the file, or where the system reads by halves."""
    if hasattr(os, "pread"):
        data: bytes = os.pread(descriptor, length, offset)
        return data
    with _turns[descriptor % len(_turns)]:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, length)


def read_at(descriptor: int, view: memoryview, offset: int) -> int:
    """Reads bytes from ``offset`` on into memory; returns how many, which may be fewer than it takes."""
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
    """Writes the first of at most `MOST_BUFFERS` from ``offset`` on; returns how many bytes, which may end inside of one."""
    if hasattr(os, "pwritev"):
        count: int = os.pwritev(descriptor, views, offset)
        return count
    if hasattr(os, "pwrite"):
        one: int = os.pwrite(descriptor, views[0], offset)
        return one
    with _turns[descriptor % len(_turns)]:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, views[0])
