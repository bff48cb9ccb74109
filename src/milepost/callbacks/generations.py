"""What differs between the generations of Keras, as methods that `keras3` and `keras2` define."""

from __future__ import annotations

from typing import Any

from milepost.callbacks.feed import Data
from milepost.callbacks.resumable import Trainer
from milepost.callbacks.running import RunningFit


class Generation:
    """A callback of one generation of Keras, as far as this package asks more of it than Keras does."""

    model: Any
    params: Any
    _data: Data | None
    _running: RunningFit

    def _trainer(self) -> Trainer:
        """How the trainer reads data."""
        raise NotImplementedError

    def _readable(self, data: Any) -> Any:
        """What the trainer takes for a feed or a dataset."""
        raise NotImplementedError

    def _without_effect(self) -> Any:
        """A callback that does nothing."""
        raise NotImplementedError

    def _continue_at_epoch(self, epoch: int) -> None:
        """Makes ``fit()`` begin with this epoch, once."""
        raise NotImplementedError

    def _leave_epoch_to_fit(self) -> None:
        """Undoes `_continue_at_epoch`."""
        raise NotImplementedError

    def _other_objects(self) -> dict[str, Any]:
        """What is to be saved beside model and optimizer."""
        return {}

    def _build_optimizer(self) -> None:
        """Lets the optimizer make what it has for each variable, which other callbacks may ask for before the first step."""

    def _make_everything(self) -> bool:
        """Lets the model make what it makes in the first step, where milepost cannot give it values later.

        Returns:
            Whether it has trained a step for that, so that its state is to be restored once more.
        """
        return False

    def _after_step(self) -> None:
        """Called after each step that was trained."""

    def _after_restoring_between_steps(self) -> None:
        """Called after a restore in the middle of an epoch, maybe of its last step."""

    def _after_epoch(self) -> None:
        """Called after the steps of an epoch."""

    def _place_of_trainer(self) -> dict[str, Any] | None:
        """What the trainer knows of its place in the data, between epochs, as plain data."""
        return None

    def _set_place_of_trainer(self, place: dict[str, Any]) -> None:
        """Makes the trainer know what `_place_of_trainer` returned."""

    def _batches_in_step(self, counted: int) -> int:
        """How many batches the step had that just ended, of data that is not wrapped.

        Args:
            counted: How many Keras counts, which may be more than there were.
        """
        return counted

    def _is_last_step(self, end: int) -> bool:
        """Whether the epoch has no step after the one that ends before batch ``end``; false where that is not known."""
        steps = (self.params or {}).get("steps")
        return bool(steps and end >= steps)
