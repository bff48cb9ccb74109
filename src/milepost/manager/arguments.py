"""Checks of the arguments of `CheckpointManager`."""

from __future__ import annotations

import os
from typing import Any

from milepost.engine.arguments import wrong
from milepost.errors import UnsupportedError
from milepost.manager.whole_numbers import whole_number
from milepost.retention import Policy


def check_arguments(
    max_to_keep: Any, keep_checkpoint_every_n_hours: Any, checkpoint_name: Any, checkpoint_interval: Any, init_fn: Any
) -> None:
    """Raises an error for arguments that would fail, or have a wrong effect, in a later save.

    Args:
        max_to_keep: As for `CheckpointManager`, like all others.
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
    """Raises an error for arguments by which no policy and no interval is meant.

    Args:
        keep: As for `CheckpointManager`, like all others.
        every_steps: Steps.
        every_seconds: Seconds.

    Raises:
        UnsupportedError: An argument has a type that is not accepted. The error names it.
    """
    if keep is not None and not isinstance(keep, Policy):
        raise wrong("keep", keep, "a policy of milepost.retention, such as Best(3, by='loss', mode='min')")
    if every_steps is not None and (isinstance(every_steps, bool) or not _is_whole(every_steps)):
        raise wrong("every_steps", every_steps, "a whole number of steps from 1 on, or None")
    if every_seconds is not None and (isinstance(every_seconds, (bool, str, bytes)) or not _is_number(every_seconds)):
        raise wrong("every_seconds", every_seconds, "a number of seconds, or None")


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
