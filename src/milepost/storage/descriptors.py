"""Opens and closes file descriptors in lists, so that Ctrl-C finds each of them either open and listed, or neither.

Python raises KeyboardInterrupt between two instructions. One of these moments is after a call and before its result has a name, when the
number of an open file would be lost and the file would stay open, and locked, until the process ends. Between the functions that `map` calls
there is no such moment.
"""

from __future__ import annotations

import os


def open_into(opened: list[int], place: str, flags: int, mode: int = 0o666) -> None:
    """Opens a file, as `os.open` does, and adds its descriptor to a list.

    Args:
        opened: The list.
        place: The path that is passed to the system.
        flags: As for `os.open`.
        mode: The permissions of a file that is created, before the process's mask.

    Raises:
        OSError: The file cannot be opened.

    Example:
        >>> opened = []
        >>> open_into(opened, os.devnull, os.O_RDONLY)
        >>> os.read(opened[0], 1)
        b''
        >>> close_all(opened)
        >>> opened
        []
    """
    opened.extend(map(os.open, (place,), (flags,), (mode,)))


def close_all(opened: list[int]) -> None:
    """Closes the descriptors in a list, the last one first, and removes them from it.

    Args:
        opened: The list. Another thread may close them at the same time.

    Raises:
        OSError: A file cannot be closed. Its descriptor is removed nevertheless.
    """
    while opened:
        try:
            tuple(map(os.close, map(list.pop, (opened,))))
        except IndexError:  # another thread has closed it
            return
