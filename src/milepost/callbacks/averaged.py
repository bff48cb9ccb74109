"""Keras' ``SwapEMAWeights``, which discards at the end of the last epoch the weights that further training needs.

There it puts the averages into the model. A run may have more epochs later, so the state before that is saved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class AveragedWeights:
    """The callbacks of a run that swap weights at the end of epochs.

    Args:
        callbacks: All callbacks.
    """

    def __init__(self, callbacks: Iterable[Any]) -> None:
        self._found = [
            each
            for each in callbacks
            if type(each).__name__ == "SwapEMAWeights" and getattr(each, "swap_on_epoch", False)
        ]
        self._held: list[tuple[Any, Any]] = []

    def hold(self, epoch: int, epochs: int) -> None:
        """Keeps the weights at the end of this epoch, if it is the last one, until `let_go`."""
        if epoch == epochs - 1:
            self._held = [(each, each.params) for each in self._found]
            for each in self._found:
                each.params = {**each.params, "epochs": epochs + 1}

    def let_go(self) -> None:
        """Performs what the callbacks would have done at the end of the last epoch."""
        pairs, self._held = self._held, []
        for callback, params in pairs:
            callback.params = params
            callback._finalize_ema_values()

    def finish(self) -> None:
        """Performs the end of the last epoch for a restored run that has no epoch left."""
        for each in self._found:
            if each._ema_weights_in_model:
                each._finalize_ema_values()
