"""Checks of the arguments of `CheckpointManager`."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from milepost.engine.arguments import is_whole_number, wrong
from milepost.errors import ArgumentError, UnsupportedError
from milepost.manager.whole_numbers import whole_number
from milepost.retention import Policy


def check_arguments(
    max_to_keep: Any, keep_checkpoint_every_n_hours: Any, checkpoint_name: Any, checkpoint_interval: Any, init_fn: Any
) -> None:
    """Raises an error for arguments that would fail, or have a wrong effect, in a later save.

    Args:
        max_to_keep: As for `CheckpointManager`, like all other arguments.
        keep_checkpoint_every_n_hours: Hours.
        checkpoint_name: The first part of the files' names, which may have directories before it.
        checkpoint_interval: Steps.
        init_fn: A function.

    Raises:
        UnsupportedError: An argument has a type or value that is not accepted. The error names it.
    """
    if max_to_keep is not None and (isinstance(max_to_keep, bool) or not _is_whole(max_to_keep)):
        raise wrong("max_to_keep", max_to_keep, "a whole number from 1 on, or None to keep all")
    hours = keep_checkpoint_every_n_hours
    if hours is not None and (isinstance(hours, (bool, str, bytes)) or not _is_number(hours)):
        raise wrong("keep_checkpoint_every_n_hours", hours, "a number of hours, or None")
    if checkpoint_interval is not None and (
        not _is_whole(checkpoint_interval) or whole_number(checkpoint_interval) < 0
    ):
        raise wrong("checkpoint_interval", checkpoint_interval, "a whole number of steps from 0 on, or None")
    if not isinstance(checkpoint_name, (str, os.PathLike)):
        raise wrong("checkpoint_name", checkpoint_name, "a name for the files, such as 'ckpt'")
    if init_fn is not None and not callable(init_fn):
        raise wrong("init_fn", init_fn, "a function without arguments, or None")


def check_times(keep: Any, every_steps: Any, every_seconds: Any) -> None:
    """Raises an error for arguments that are not a policy or an interval.

    Args:
        keep: As for `CheckpointManager`, like all other arguments.
        every_steps: Steps.
        every_seconds: Seconds.

    Raises:
        UnsupportedError: An argument has a type that is not accepted. The error names it.
        ArgumentError: An interval is not greater than 0.
    """
    if keep is not None and not isinstance(keep, Policy):
        raise wrong("keep", keep, "a policy of milepost.retention, such as Best(3, by='loss', mode='min')")
    check_interval("every_steps", every_steps)
    check_interval("every_seconds", every_seconds)


def check_switch(name: str, value: Any) -> None:
    """Raises an error for an argument that is neither true nor false.

    Args:
        name: The argument.
        value: What was passed. Metrics that are passed by position arrive here, for example.

    Raises:
        UnsupportedError: The value is not True or False.

    Example:
        >>> check_switch("check_interval", {"loss": 0.5})
        Traceback (most recent call last):
        milepost.errors.UnsupportedError: this argument cannot be used
          key: check_interval
          expected: True or False
          found: {'loss': 0.5} of type dict
          remedy: pass metrics and metadata by name, as in save(step, metrics={'loss': 0.5})
    """
    if not isinstance(value, (bool, int, np.bool_)):
        by_name = "pass metrics and metadata by name, as in save(step, metrics={'loss': 0.5})"
        raise wrong(name, value, "True or False", by_name if isinstance(value, dict) else None)


def check_order(step: Any, tree: Any, order: str) -> None:
    """Refuses a step and a tree that were exchanged.

    Raises:
        UnsupportedError: ``tree`` is an integer, and ``step`` is not a number.

    Example:
        >>> check_order({"weights": [0.5]}, 7, "save(tree, step)")
        Traceback (most recent call last):
        milepost.errors.UnsupportedError: two arguments are exchanged
          expected: save(tree, step)
          found: an object of type dict in the place of the step 7
          remedy: exchange the two arguments
    """
    if step is not None and is_whole_number(tree) and not _is_number(step):
        raise UnsupportedError(
            "two arguments are exchanged",
            expected=order,
            found=f"an object of type {type(step).__name__} in the place of the step {tree}",
            remedy="exchange the two arguments",
        )


def check_interval(name: str, value: Any) -> None:
    """Raises an error for an argument that is not an interval between two saves.

    Args:
        name: The argument: ``every_`` and a unit. Seconds need not be a whole number.
        value: The interval, or None for none.

    Raises:
        UnsupportedError: The value is not a number.
        ArgumentError: The value is not greater than 0. This is a ``ValueError``.

    Example:
        >>> check_interval("every_epochs", 0)
        Traceback (most recent call last):
        milepost.errors.ArgumentError: every_epochs must be greater than 0
          key: every_epochs
          expected: a whole number of epochs from 1 on, or None
          found: 0
          remedy: pass 1 to save after each, or None to save without regard to epochs
    """
    if value is None:
        return
    unit = name.removeprefix("every_")
    is_whole = unit != "seconds"
    expected = f"a whole number of {unit} from 1 on, or None" if is_whole else f"a number of {unit}, or None"
    if isinstance(value, (bool, str, bytes)) or not (_is_whole(value) if is_whole else _is_number(value)):
        raise wrong(name, value, expected)
    if not value > 0:
        smallest = "1 to save after each" if is_whole else f"the {unit} between two saves"
        raise ArgumentError(
            f"{name} must be greater than 0",
            key=name,
            expected=expected,
            found=value,
            remedy=f"pass {smallest}, or None to save without regard to {unit}",
        )


def _is_whole(value: Any) -> bool:
    try:
        whole_number(value)
    except UnsupportedError:
        return False
    return True


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
