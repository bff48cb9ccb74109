"""The states of the callbacks of a ``Trainer``: those that define one by ``state()``, as transformers' ``ExportableState`` does."""

from __future__ import annotations

import copy
from typing import Any

from milepost.adapters.transformers import private

States = dict[str, list[dict[str, Any]]]


class ExportedStates:
    """Saves and restores the states of callbacks, such as early stopping.

    ``state()`` of a callback has ``attributes``, and ``args`` with which another one is made. Of these, some are state, such as a count, and
    some are settings, such as a patience. Those that have changed since training began are state; the others are the program's.

    Args:
        callbacks: The callbacks, before anything is restored.
    """

    def __init__(self, callbacks: list[Any]) -> None:
        self._first = [(callback, copy.deepcopy(_args(callback))) for callback in private.with_state(callbacks)]

    def attributes(self, callbacks: list[Any]) -> States:
        """What each callback of a class has as ``attributes``, by the name of the class."""
        states: States = {}
        for callback in private.with_state(callbacks):
            states.setdefault(type(callback).__name__, []).append(callback.state().get("attributes", {}))
        return states

    def arguments(self, callbacks: list[Any]) -> States:
        """The ``args`` of each callback of a class that have changed since training began, by the name of the class."""
        states: States = {}
        for callback in private.with_state(callbacks):
            first = next((args for each, args in self._first if each is callback), {})
            changed = {
                name: value for name, value in _args(callback).items() if name not in first or first[name] != value
            }
            states.setdefault(type(callback).__name__, []).append(changed)
        return states

    def restore(self, callbacks: list[Any], attributes: States, arguments: States) -> None:
        """Restores what `attributes` and `arguments` returned, in the callbacks themselves."""
        left = {name: list(each) for name, each in attributes.items()}
        left_arguments = {name: list(each) for name, each in arguments.items()}
        for callback in private.with_state(callbacks):
            kind = type(callback).__name__
            if left_arguments.get(kind):
                _take_arguments(callback, left_arguments[kind].pop(0))
            if left.get(kind):
                for name, value in left[kind].pop(0).items():
                    setattr(callback, name, value)


def _args(callback: Any) -> dict[str, Any]:
    args: dict[str, Any] = callback.state().get("args", {})
    return args


def _take_arguments(callback: Any, changed: dict[str, Any]) -> None:
    if not all(hasattr(callback, name) for name in changed):
        # its constructor alone knows what they mean
        vars(callback).update(vars(type(callback)(**{**_args(callback), **changed})))
        return
    for name, value in changed.items():
        setattr(callback, name, value)
