"""Checks of arguments. They run when an object is made, so that a mistake does not stop a training run later."""

from __future__ import annotations

from typing import Any

import numpy as np

from milepost.errors import UnsupportedError


def wrong(name: str, value: Any, expected: str, remedy: str | None = None) -> UnsupportedError:
    """The error for an argument of a type or value that is not accepted.

    Args:
        name: The argument.
        value: The value that was given.
        expected: The values that are accepted.
        remedy: What to do; by default, to pass ``expected``.

    Example:
        >>> print(wrong("max_to_keep", "3", "a whole number, or None"))
        this argument cannot be used
          key: max_to_keep
          expected: a whole number, or None
          found: '3' of type str
          remedy: pass a whole number, or None
    """
    return UnsupportedError(
        "this argument cannot be used",
        key=name,
        expected=expected,
        found=f"{value!r:.80} of type {type(value).__name__}",
        remedy=remedy or f"pass {expected}",
    )


def is_whole_number(value: Any) -> bool:
    """Whether this is an integer of Python or NumPy. A bool is not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
