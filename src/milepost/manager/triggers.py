"""When a save is due: after a number of steps, and by the clock."""

from __future__ import annotations

import time

from milepost.manager.arguments import check_interval


class Triggers:
    """Decides whether a save is due.

    A save is due at each multiple of ``every_steps``, or at the first step after it, and when ``every_seconds`` have passed since
    the last save.

    Args:
        every_steps: Steps, or None.
        every_seconds: Seconds, or None.

    Raises:
        UnsupportedError: One of them is not a number.
        ArgumentError: A ``ValueError``: one of them is not greater than 0.

    Example:
        >>> triggers = Triggers(every_steps=10)
        >>> [step for step in range(4, 40, 3) if triggers.by_step(step) and triggers.saved(step) is None]
        [10, 22, 31]
    """

    def __init__(self, every_steps: int | None = None, every_seconds: float | None = None) -> None:
        check_interval("every_steps", every_steps)
        check_interval("every_seconds", every_seconds)
        self.every_steps = every_steps
        self.every_seconds = every_seconds
        self.last_step: int | None = None
        self._last_time = time.monotonic()

    def saved(self, step: int | None) -> None:
        """Records a save: of everything up to a step, or with None at a step that is not known."""
        if step is not None:
            self.last_step = step
        self._last_time = time.monotonic()

    def by_step(self, step: int) -> bool:
        """Whether a save is due at this step, by the number of steps."""
        if self.every_steps is None:
            return False
        if self.last_step is None:
            # nothing is saved yet, so steps are counted from the first call
            self.last_step = step if step % self.every_steps else step - 1
        return step // self.every_steps > self.last_step // self.every_steps

    def by_clock(self) -> bool:
        """Whether a save is due now, by the clock."""
        return self.every_seconds is not None and time.monotonic() - self._last_time >= self.every_seconds
