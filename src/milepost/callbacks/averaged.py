"""Keras' ``SwapEMAWeights`` at the end of the last epoch, where it throws away the weights that training would go on with.

It does so because ``fit()`` then puts the averages into the model. A run may have more epochs later, so what is saved is
the state before that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class AveragedWeights:
    """The callbacks of this kind in a run, which swap at the end of epochs.

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
        """Lets the weights survive the end of this epoch if it is the last one, until `let_go`."""
        if epoch == epochs - 1:
            self._held = [(each, each.params) for each in self._found]
            for each in self._found:
                each.params = {**each.params, "epochs": epochs + 1}

    def let_go(self) -> None:
        """Does what the callbacks would have done at the end of the last epoch."""
        held, self._held = self._held, []
        for each, params in held:
            each.params = params
            each._finalize_ema_values()

    def finish(self) -> None:
        """Does the same for a run that was restored and has no epoch left."""
        for each in self._found:
            if each._ema_weights_in_model:
                each._finalize_ema_values()
