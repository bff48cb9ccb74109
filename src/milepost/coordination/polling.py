"""Waits for what can only be looked for again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

_Found = TypeVar("_Found")
_SHARE: Final = 16
"""A pause is this part of the time that has passed, so a message is noticed by at most so much later than it came."""


def poll(look: Callable[[], _Found | None], timeout: float, shortest: float, longest: float) -> _Found | None:
    """Calls a function until it finds something.

    Pauses grow with the time that has passed: a short wait is noticed at once, and a long one takes few calls.

    Args:
        look: The function. It returns None while there is nothing.
        timeout: Seconds after which to give up. With 0, it is called once.
        shortest: Seconds of the first pauses.
        longest: Seconds of the last ones.

    Returns:
        What it found, or None if the time has passed.

    Example:
        >>> answers = [None, None, "here"]
        >>> poll(lambda: answers.pop(0), timeout=1, shortest=0.001, longest=0.1)
        'here'
    """
    start = time.monotonic()
    while (answer := look()) is None:
        passed = time.monotonic() - start
        if passed >= timeout:
            return None
        time.sleep(min(max(passed / _SHARE, shortest), longest, timeout - passed))
    return answer
