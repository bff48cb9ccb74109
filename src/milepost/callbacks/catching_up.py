"""Counting through the steps of an epoch that were trained before the run was interrupted.

For each of these steps, a function that trains nothing stands in the place of the model's train function. It is put there
right before the step and takes itself away when it is called, so that a ``fit()`` that ends with an exception leaves the
model as it was.
"""

from __future__ import annotations

import sys
from typing import Any

from milepost.callbacks.running import RunningFit
from milepost.errors import MismatchError


class CatchingUp:
    """The steps that are not trained again.

    Args:
        path: The checkpoint in which they were saved.
        steps: How many there are.
        end: The batch that Keras counts as the last of them, plus one.
        logs: What Keras gave to callbacks at the last of them.
    """

    def __init__(self, path: str, steps: int | None, end: int, logs: dict[str, Any]) -> None:
        self.path = path
        self.logs = logs
        self._steps = steps
        self._end = end
        self._done = 0

    def is_over(self, end: int) -> bool:
        """Takes note of a step, and says whether it was the last.

        Args:
            end: The batch that Keras counts as the last of this step, plus one.

        Raises:
            MismatchError: Steps have other numbers of batches than they had.
        """
        self._done += 1
        # The first form of such checkpoints counts batches only.
        over = end >= self._end if self._steps is None else self._done >= self._steps
        if end > self._end or (over and end != self._end):
            raise MismatchError(
                "fit() groups batches into steps differently than when this checkpoint was saved",
                file=self.path,
                expected=f"a step that ends after batch {self._end}",
                found=f"a step that ends after batch {end}",
                remedy="compile the model with the same steps_per_execution",
            )
        return over


class Counting:
    """A train function that trains nothing, for one step.

    Args:
        model: The model.
        logs: What it returns.
        fit: The call of ``fit()`` that it is for. When another one calls it, it lets the model's own function train.
    """

    def __init__(self, model: Any, logs: dict[str, Any], fit: RunningFit) -> None:
        remove_counting(model)
        self._model = model
        self._logs = logs
        self._fit = fit
        self.replaced = model.train_function
        model.train_function = self

    def __call__(self, *arguments: Any) -> Any:
        """What the trainer takes for a step: PyTorch's and TensorFlow's pass the data, JAX' its state and the data."""
        remove_counting(self._model)
        if not self._fit.is_called_from_it(sys._getframe(1)):
            return self.replaced(*arguments)
        return (dict(self._logs), arguments[0]) if len(arguments) > 1 else dict(self._logs)


def remove_counting(model: Any) -> None:
    """Gives a model its own train function back."""
    while isinstance(getattr(model, "train_function", None), Counting):
        model.train_function = model.train_function.replaced
