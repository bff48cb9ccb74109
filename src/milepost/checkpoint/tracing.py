"""Saves and restores inside a ``tf.function``. Its Python code runs when the function is traced, not each time it is called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

from milepost.errors import UnsupportedError

_Function = TypeVar("_Function", bound=Callable[..., Any])

RESTORE_OUTSIDE: Final = "restore before calling the function"
"""The remedy for a restore."""


def is_traced() -> bool:
    """Whether TensorFlow is tracing a function now.

    Example:
        >>> is_traced()
        False
    """
    tf: Any = sys.modules.get("tensorflow")
    if tf is None or not hasattr(tf, "executing_eagerly") or tf.executing_eagerly():
        return False
    return bool(tf.compat.v1.get_default_graph().building_function)


def refuse_if_traced(
    what: str,
    remedy: str = "call it outside the function, or call Checkpoint.write() inside, which writes each time the function runs",
) -> None:
    """Refuses an action that would happen once, while a function is traced, before its operations run.

    Raises:
        UnsupportedError: A function is being traced.
    """
    if is_traced():
        error = UnsupportedError(
            f"{what} inside a tf.function would happen once, when the function is traced, before its operations run",
            remedy=remedy,
        )
        error.ag_pass_through = True  # type: ignore[attr-defined]  # AutoGraph would raise an error of its own in its place
        raise error


def as_written(function: _Function) -> _Function:
    """Keeps TensorFlow's AutoGraph from translating a function, and what it calls, when a ``tf.function`` calls it.

    Source of the attribute: TensorFlow 2.21, ``tensorflow/python/autograph/core/ag_ctx.py`` and ``impl/api.py``,
    ``autograph_artifact``.
    """
    function.autograph_info__ = {}  # type: ignore[attr-defined]
    return function
