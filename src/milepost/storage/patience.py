"""Waits until other programs have closed a file, on systems that can neither replace nor remove an open file."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

SECONDS: Final = 2.0
"""How long to try. Virus scanners and readers of a state file have a file open for a far shorter time."""
_PAUSE: Final = 0.01


def patiently(act: Callable[[], None], seconds: float = SECONDS) -> None:
    """Calls a function that the system may refuse for a moment.

    Args:
        act: The function. It is called again if it raises a `PermissionError`.
        seconds: How long to try.

    Raises:
        PermissionError: The error of the last call.

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
