"""The differences between Keras 2 and 3, as an object of which `keras2` and `keras3` define a kind each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milepost.callbacks.data.feed import Data
from milepost.callbacks.data.resumable import Trainer
from milepost.callbacks.fit import FitCall

if TYPE_CHECKING:
    from milepost.callbacks.runs import SavedRun


class Generation:
    """The trainers of Keras 2 or 3, for one callback.

    Attributes:
        reads: How the trainer reads data.
        ends_with_data: Whether a run ends with an epoch that has fewer batches than steps.
    """

    reads: Trainer
    ends_with_data: bool = False

    def readable(self, data: Any) -> Any:
        """A feed or dataset in the form that the trainer reads."""
        raise NotImplementedError

    def start_at(self, model: Any, epoch: int) -> None:
        """Makes ``fit()`` start at the epoch that it was given, even if another callback has chosen one since."""
        raise NotImplementedError

    def steps(self, call: FitCall) -> int | None:
        """The number of steps in an epoch, if the program has given it."""
        return call.arguments.get("steps_per_epoch")

    def current(self, model: Any) -> Any:
        """The model, after the trainer has put its present state there."""
        return model

    def check(self, call: FitCall, data: Data | None) -> None:
        """Warns of what cannot be resumed exactly."""

    def other_objects(self, model: Any) -> dict[str, Any]:
        """The objects to save in addition to the model and the optimizer."""
        return {}

    def build_optimizer(self, model: Any) -> None:
        """Lets the optimizer make its state for each variable, which other callbacks may use before the first step."""

    def make_everything(self, model: Any, data: Data) -> bool:
        """Lets the model make the objects that it would make in the first step, because their values cannot be restored later.

        Returns:
            Whether this has trained a step. Then the state of the model must be restored once more.
        """
        return False

    def make_for_the_end(self, model: Any, data: Data | None) -> bool:
        """Lets the model make the objects that ``fit()`` uses at its end, if nothing is left to train. Returns as `make_everything`."""
        return False

    def counted_at_end(self, model: Any) -> int:
        """The batches in a step, if the trainer counts the step that finds that data of unknown length has ended; otherwise 0."""
        return 0

    def before_step(self, run: SavedRun) -> None:
        """Called before each step."""

    def after_step(self, run: SavedRun) -> None:
        """Called after each trained step."""

    def after_restoring_between_steps(self, model: Any) -> None:
        """Called after a restore in the middle of an epoch. No step of the epoch may be left."""

    def after_epoch(self, run: SavedRun) -> None:
        """Called after the steps of an epoch."""

    def batches_run(self, run: SavedRun, counted: int) -> int:
        """The number of batches that the trainer can have trained in the step that just ended.

        Args:
            run: The run.
            counted: The number that Keras counts, which may be too large.
        """
        return counted
