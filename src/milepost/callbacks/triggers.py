"""When a run of ``fit()`` is saved: after a number of epochs, batches or seconds."""

from __future__ import annotations

from milepost.manager.arguments import check_interval
from milepost.manager.triggers import Triggers


class EpochTriggers(Triggers):
    """Decides whether a save is due. Batches are counted from the last save.

    Args:
        every_epochs: Epochs, or None.
        every_steps: Batches, or None.
        every_seconds: Seconds, or None.

    Raises:
        UnsupportedError: One of them is not a number.
        ArgumentError: A ``ValueError``: one of them is not greater than 0.
    """

    def __init__(self, every_epochs: int | None, every_steps: int | None, every_seconds: float | None) -> None:
        super().__init__(every_steps, every_seconds)
        check_interval("every_epochs", every_epochs)
        self.every_epochs = every_epochs
        self.saved(0)

    @property
    def within_epochs(self) -> bool:
        """Whether saves may be due in the middle of an epoch."""
        return self.every_steps is not None or self.every_seconds is not None

    def by_step(self, step: int) -> bool:
        return self.every_steps is not None and step - (self.last_step or 0) >= self.every_steps

    def after_batch(self, step: int) -> bool:
        """Whether a save is due after this number of batches of the whole run."""
        return self.by_step(step) or self.by_clock()

    def after_epoch(self, epochs: int, step: int) -> bool:
        """Whether a save is due after this number of epochs."""
        if self.every_epochs is not None and epochs % self.every_epochs == 0:
            return True
        return self.after_batch(step)
