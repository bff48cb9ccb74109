"""The ``checkpoint_interval`` of a manager: the training steps that must pass between two saves."""

from __future__ import annotations

from typing import Any

from milepost.manager.whole_numbers import whole_number


class StepInterval:
    """Counts the training steps since the last save.

    Args:
        counter: The variable that counts training steps, or None.
        steps: How many steps must pass between two saves, or None for no limit.
        last: The step of the last save, or None.

    Attributes:
        steps: As given.
        last: The step of the last save, or None.

    Example:
        >>> interval = StepInterval(counter=12, steps=10, last=5)
        >>> interval.is_too_early(interval.now()), interval.is_too_early(15)
        (True, False)
    """

    def __init__(self, counter: Any, steps: int | None, last: int | None) -> None:
        self._counter = counter
        self.steps = steps
        self.last = last

    def now(self) -> int | None:
        """The present training step; None without an interval, since the counter is not read then.

        Raises:
            UnsupportedError: The counter holds no whole number.
        """
        return None if self.steps is None else whole_number(self._counter)

    def is_too_early(self, step: int | None, check_interval: bool = True) -> bool:
        """Whether a save must not be made at a step.

        Args:
            step: The training step, from `now`.
            check_interval: Whether the interval counts. Without it, only a second save at the same step is too early.
        """
        if step is None or self.last is None or self.steps is None:
            return False
        return step == self.last or (check_interval and step < self.last + self.steps)
