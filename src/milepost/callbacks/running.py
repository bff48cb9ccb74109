"""The call of ``fit()`` that uses a callback, found on the stack: its arguments, its callbacks, and whether it still runs.

Keras does not tell a callback the arguments of ``fit()``, nor that it has ended with an exception. Both can be seen in
the frame of ``fit()``, in which the list of callbacks and the arguments have the same names with every trainer.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType
from typing import Any, Final

_DEEPEST: Final = 12
"""Frames between a method of a callback and ``fit()``; Keras has four at most."""


class RunningFit:
    """One call of ``fit()``.

    Attributes:
        callbacks: Keras' ``CallbackList``, or None if a program calls the methods of its callbacks itself.
        arguments: The arguments and other local variables of ``fit()`` at this time; empty without a ``fit()``.
        reader: The object that reads the data for ``fit()``: Keras 3's ``EpochIterator``, Keras 2's ``DataHandler``, or
            None.
        code: The code of ``fit()``, or None.
    """

    def __init__(self, callback: Any) -> None:
        self.callbacks: Any = None
        self.code: CodeType | None = None
        self.arguments: Mapping[str, Any] = {}
        self.reader: Any = None
        self._thread = threading.get_ident()
        for frame in _outwards(sys._getframe(1), _DEEPEST):
            owner = frame.f_locals.get("self") if frame.f_code.co_name == "on_train_begin" else None
            if owner is not callback and isinstance(getattr(owner, "callbacks", None), list):
                self.callbacks = owner
            elif frame.f_code.co_name == "fit" and self._is_frame(frame):
                self.code = frame.f_code
                self.arguments = dict(frame.f_locals)
                self.reader = self.arguments.get("epoch_iterator", self.arguments.get("data_handler"))
                break

    def is_running(self) -> bool:
        """Whether ``fit()`` has neither returned nor ended with an exception. True if that is not known."""
        if self.code is None:
            return True
        innermost = sys._current_frames().get(self._thread)
        return any(frame.f_code is self.code and self._is_frame(frame) for frame in _outwards(innermost))

    def is_called_from_it(self, caller: FrameType) -> bool:
        """Whether a frame is that of ``fit()``. True if there is none."""
        return self.code is None or (caller.f_code is self.code and self._is_frame(caller))

    def others(self, callback: Any) -> list[Any]:
        """The other callbacks, in their order."""
        found = [] if self.callbacks is None else self.callbacks.callbacks
        return [each for each in found if each is not callback]

    def _is_frame(self, frame: FrameType) -> bool:
        return self.callbacks is not None and frame.f_locals.get("callbacks") is self.callbacks


class FirstEpoch:
    """The first epoch of ``fit()``, in the place where Keras asks for it once.

    Args:
        model: The model.
        epoch: The epoch.
        fit: The call of ``fit()`` that starts at this epoch. Other calls are not affected.
    """

    def __init__(self, model: Any, epoch: int, fit: RunningFit) -> None:
        self._model = model
        self._epoch = epoch
        self._fit = fit


def _outwards(frame: FrameType | None, most: int | None = None) -> Iterator[FrameType]:
    while frame is not None and (most is None or most > 0):
        yield frame
        frame = frame.f_back
        most = None if most is None else most - 1


def move_to_the_end(callbacks: list[Any], callback: Any, nothing: Any) -> bool:
    """Moves a callback to the end of the list, from inside its own ``on_train_begin``, while Keras iterates over the list.

    The callback is added at the end, where its ``on_train_begin`` is called again. A callback that does nothing takes
    its earlier place, because Keras would skip another callback if it were removed.

    Args:
        callbacks: The callbacks of a ``CallbackList``.
        callback: The callback.
        nothing: A callback without effect.

    Returns:
        Whether it was moved, so that it will be called again.
    """
    if not any(each is callback for each in callbacks) or callbacks[-1] is callback:
        return False
    for index, each in enumerate(callbacks):
        if each is callback:
            callbacks[index] = nothing
    callbacks.append(callback)
    return True
