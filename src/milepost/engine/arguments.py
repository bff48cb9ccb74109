"""Checks of arguments, made where an object is made, so that a mistake is found there and not in the middle of a training run."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from milepost.errors import UnsupportedError


def wrong(name: str, value: Any, expected: str, remedy: str | None = None) -> UnsupportedError:
    """The error for an argument of a type or value that is not accepted.

    Args:
        name: The argument.
        value: What was given.
        expected: What is accepted.
        remedy: What to write instead; by default, to pass what is expected.

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
    """Whether this is an integer of Python or NumPy, and no truth value."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_has_file_name(name: str, path: str) -> None:
    """Refuses the path of a checkpoint without a last part, which would become the path of a hidden file.

    Args:
        name: The argument.
        path: The path of the files of a checkpoint.

    Raises:
        UnsupportedError: The path is empty, or ends with a separator.

    Example:
        >>> check_has_file_name("file_prefix", "run/ckpt")
        >>> check_has_file_name("file_prefix", "run/")
        Traceback (most recent call last):
        milepost.errors.UnsupportedError: the prefix has no file name
          key: file_prefix
          expected: the path of a directory, and a name for the files
          found: 'run/'
          remedy: pass 'run/ckpt'
    """
    if not os.path.basename(path):
        raise UnsupportedError(
            "the prefix has no file name",
            key=name,
            expected="the path of a directory, and a name for the files",
            found=repr(path),
            remedy=f"pass {os.path.join(path, 'ckpt')!r}",
        )
