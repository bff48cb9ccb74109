"""Counts through the steps of an epoch that were trained before the interruption.

In each of these steps, a function that trains nothing replaces the train function of the model. It is set right before
the step and removes itself when it is called. So a ``fit()`` that ends with an exception leaves the model unchanged.
"""

from __future__ import annotations

from typing import Any

from milepost.errors import MismatchError


class CatchingUp:
    """The steps that are not trained again.

    Args:
        path: The checkpoint of the run.
        steps: The number of these steps.
        end: The index of the last batch of these steps, as Keras counts, plus one.
        logs: The logs of the last of these steps.
    """

    def __init__(self, path: str, steps: int | None, end: int, logs: dict[str, Any]) -> None:
        self.path = path
        self.logs = logs
        self._steps = steps
        self._end = end
        self._done = 0

    def is_over(self, end: int) -> bool:
        """Records a step, and returns whether it was the last.

        Args:
            end: The index of the last batch of this step, as Keras counts, plus one.

        Raises:
            MismatchError: Steps have different numbers of batches than before.
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
        logs: The logs that it returns.
    """

    def __init__(self, model: Any, logs: dict[str, Any]) -> None:
        self._model = model
        self._logs = logs
        self.replaced = model.train_function

    def __call__(self, *arguments: Any) -> Any:
        """The step in the form that the trainer calls: those of PyTorch and TensorFlow pass the data, that of JAX its state and the data."""
        remove_counting(self._model)
        return (dict(self._logs), arguments[0]) if len(arguments) > 1 else dict(self._logs)


def count_only(model: Any, logs: dict[str, Any]) -> None:
    """Makes the next step of a model train nothing, and return logs."""
    remove_counting(model)
    model.train_function = Counting(model, logs)


def remove_counting(model: Any) -> None:
    """Restores the train function of a model."""
    while isinstance(getattr(model, "train_function", None), Counting):
        model.train_function = model.train_function.replaced
