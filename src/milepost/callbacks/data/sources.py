"""Sources of batches, and how to return to a position in them.

A source is read in *passes*, each from the first batch to the last. How a saved position is restored:

=====================================================  ===========================================================
arrays                                                 computed: a seed determines the order of a pass
``PyDataset``, ``Sequence``                            computed in the same way; batches are made by index
iterables and iterators that save their own state      they get that state
objects that milepost tracks, ``tf.data`` iterators    restored with the checkpoint
other iterables, such as PyTorch's ``DataLoader``      read again from the start of the pass, with the random state and
                                                       the attributes of that time (`milepost.callbacks.data.own_state`); it
                                                       is an error if the last batch is not the saved one
=====================================================  ===========================================================

The state of an object after the last batch of a pass can mean that the pass is finished, or that the next one begins.
One rule is right for both, in resumed runs and in others. A pass is read until it has no more batches before its end is
saved. If the iterator at the start of a pass is empty, it was the iterator of the previous pass, so the object is asked
for another one. If that is empty too, the object returns to its state before the first pass.

Generators and other iterators without state raise an error, because they cannot be read twice.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any

from milepost.adapters.packed import PackedAdapter
from milepost.callbacks.data.reachable import STATE_METHODS
from milepost.errors import UnsupportedError
from milepost.graph import PythonState, TensorState
from milepost.graph.adapter import adapter_of

Attach = Callable[[Any], None]
"""Gives an object the values that the checkpoint being resumed holds for the data."""


class Source(abc.ABC):
    """Batches, in passes.

    Attributes:
        length: The number of batches in a pass, or None if it is not known or there is no end.
        looks_ahead: Whether the next batch must be read to know if state belongs to this pass or to the next.
        is_stream: Whether there is only one pass, which continues in every epoch.
    """

    length: int | None = None
    looks_ahead: bool = False
    is_stream: bool = False

    @abc.abstractmethod
    def begin(self, number: int) -> None:
        """Starts a pass; the first is number 0."""

    @abc.abstractmethod
    def next(self) -> Any:
        """The next batch of the pass.

        Raises:
            StopIteration: There is none.
        """

    def finish(self) -> None:  # noqa: B027 - right for those that do nothing at the end of a pass
        """Ends the pass after all of its `length` batches, if the trainer has not read on to its end."""

    @abc.abstractmethod
    def save(self) -> Any:
        """The present position, as plain data for `load`."""

    def save_end(self) -> Any:
        """The position at the end of a pass, as plain data for `load`."""
        return self.save()

    def check(self, state: Any) -> None:  # noqa: B027 - right for those that cannot tell
        """Checks, before anything is read, that ``state`` fits this source.

        Raises:
            MismatchError: The state was saved with different data.
        """

    @abc.abstractmethod
    def load(self, state: Any, number: int, index: int, ended: bool, attach: Attach) -> None:
        """Returns to a position.

        Args:
            state: The result of `save` at this position.
            number: The number of the pass.
            index: The number of batches of the pass that had been read.
            ended: Whether these were all batches of the pass. If so, the next call is `begin`.
            attach: Restores the state of sources whose state is in the checkpoint itself.
        """

    def reset(self, state: Any) -> None:  # noqa: B027 - right for those that `begin` takes anywhere
        """Returns to the state before the first pass, where ``state`` was saved."""

    def tracked(self) -> Any:
        """The object to save with the checkpoint, or None."""
        return None

    def stand_in(self) -> Any:
        """An object like `tracked` that can be restored at any time, or None."""
        return None


def state_of(data: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """The functions that get and set the own state of an object, if it has any."""
    adapter = adapter_of(data)
    if isinstance(adapter, PackedAdapter) and hasattr(data, "__iter__"):
        return functools.partial(adapter.state, data), functools.partial(adapter.load, data)
    for get, put in STATE_METHODS:
        if callable(getattr(data, get, None)) and callable(getattr(data, put, None)):
            return getattr(data, get), getattr(data, put)
    if isinstance(data, (PythonState, TensorState)):
        return data.serialize, data.deserialize
    return None


def cannot_be_positioned(data: Any, reason: str) -> UnsupportedError:
    """The error for data that cannot return to a position."""
    return UnsupportedError(
        f"this data cannot return to a saved position: {reason}",
        key="data",
        expected="arrays, a tf.data.Dataset, a PyDataset, a DataLoader, an iterable, or an iterator that saves its state",
        found=f"a {type(data).__name__}",
        remedy="give the data get_state() and set_state(), or state_dict() and load_state_dict()",
    )
