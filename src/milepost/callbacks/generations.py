"""The differences between Keras 2 and 3, as methods that `keras2` and `keras3` define."""

from __future__ import annotations

from typing import Any

from milepost.callbacks.feed import Data
from milepost.callbacks.resumable import Trainer
from milepost.callbacks.running import RunningFit


class Generation:
    """The methods that this package adds to a callback of Keras 2 or 3."""

    model: Any
    params: Any
    _data: Data | None
    _running: RunningFit

    def _trainer(self) -> Trainer:
        """How the trainer reads data."""
        raise NotImplementedError

    def _readable(self, data: Any) -> Any:
        """A feed or dataset in the form that the trainer reads."""
        raise NotImplementedError

    def _without_effect(self) -> Any:
        """A callback that does nothing."""
        raise NotImplementedError

    def _continue_at_epoch(self, epoch: int) -> None:
        """Makes the next ``fit()`` start at this epoch."""
        raise NotImplementedError

    def _leave_epoch_to_fit(self) -> None:
        """Undoes `_continue_at_epoch`."""
        raise NotImplementedError

    def _other_objects(self) -> dict[str, Any]:
        """The objects to save in addition to the model and the optimizer."""
        return {}

    def _build_optimizer(self) -> None:
        """Lets the optimizer make its state for each variable, which other callbacks may use before the first step."""

    def _make_everything(self) -> bool:
        """Lets the model make the objects that it would make in the first step, because their values cannot be restored later.

        Returns:
            Whether this has trained a step. Then the state of the model must be restored once more.
        """
        return False

    def _make_for_the_end(self) -> bool:
        """Lets the model make the objects that ``fit()`` uses at its end, if nothing is left to train. Returns as `_make_everything`."""
        return False

    def _after_step(self) -> None:
        """Called after each trained step."""

    def _after_restoring_between_steps(self) -> None:
        """Called after a restore in the middle of an epoch. No step of the epoch may be left."""

    def _after_epoch(self) -> None:
        """Called after the steps of an epoch."""

    def _place_of_trainer(self) -> dict[str, Any] | None:
        """The trainer's own position in the data between epochs, as plain data."""
        return None

    def _set_place_of_trainer(self, place: dict[str, Any]) -> None:
        """Sets the position that `_place_of_trainer` returned."""

    def _batches_run(self, counted: int) -> int:
        """The number of batches that the trainer can have trained in the step that just ended.

        Args:
            counted: The number that Keras counts, which may be too large.
        """
        return counted

    def _batches_in_step(self, counted: int) -> int:
        """The number of batches in the step that just ended, for data that is not wrapped.

        Args:
            counted: The number that Keras counts, which may be too large.
        """
        return counted

    def _is_last_step(self, end: int) -> bool:
        """Whether the step that ends before batch ``end`` is the last of the epoch. False if that is not known."""
        steps = (self.params or {}).get("steps")
        return bool(steps and end >= steps)
