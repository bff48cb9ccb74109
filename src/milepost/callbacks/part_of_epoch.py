"""Keeps others from taking a part of an epoch for a whole one, if ``fit()`` ends within it.

Keras validates the model then, and calls ``on_epoch_end`` with what it has: ``ModelCheckpoint`` would keep a model as the best that the whole epoch does
not end with, and ``CSVLogger`` would write its row. The resumed run does all of this at the end of the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_ABSENT: Final = object()


class PartOfEpoch:
    """Replaces ``evaluate()`` of a model and ``on_epoch_end()`` of its callbacks by methods that do nothing, until `end`."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []
        self._has_history = False

    def begin(self, model: Any, callbacks: Iterable[Any]) -> None:
        """Begins the end of ``fit()`` within an epoch.

        Args:
            model: The model.
            callbacks: The callbacks that must not be told.
        """
        history = getattr(model, "history", None)
        self._has_history = history is not None
        if self._has_history:
            self._exchange(history, "on_epoch_end", _ignore_epoch)
        self._exchange(model, "evaluate", lambda *arguments, **named: {})
        for callback in callbacks:
            self._exchange(callback, "on_epoch_end", _ignore_epoch)

    def end(self, *, but_history: bool = False) -> None:
        """Gives each its own method again.

        Args:
            but_history: Whether the history keeps that of `begin`, because Keras has not told it of the epoch yet.
        """
        while len(self._replaced) > (self._has_history if but_history else 0):
            instance, name, own = self._replaced.pop()
            if own is _ABSENT:
                vars(instance).pop(name, None)
            else:
                vars(instance)[name] = own

    def _exchange(self, instance: Any, name: str, method: Any) -> None:
        attributes = vars(instance)
        self._replaced.append((instance, name, attributes.get(name, _ABSENT)))
        attributes[name] = method


def _ignore_epoch(epoch: int, logs: Any = None) -> None:
    pass
