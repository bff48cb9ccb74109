"""Waiting until others have closed a file, where a file that is open can be neither replaced nor removed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

SECONDS: Final = 2.0
"""How long to try. Virus scanners, and those who read a state file, have a file open for far less."""
_PAUSE: Final = 0.01


def patiently(act: Callable[[], None], seconds: float = SECONDS) -> None:
    """Does something that the system may refuse for a moment.

    Args:
        act: What to do. A `PermissionError` of it means that it can be tried again.
        seconds: How long to try.

    Raises:
        PermissionError: The last refusal.

    Example:
        >>> refusals = [PermissionError(), PermissionError()]
        >>> def act():
        ...     if refusals:
        ...         raise refusals.pop()
        >>> patiently(act)
        >>> refusals
        []
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            act()
            return
        except PermissionError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE)
