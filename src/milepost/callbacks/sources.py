"""Where batches come from, and how to come back to any place in there.

A source is read in *passes*, each from the first batch to the last. How exactly a place is found again:

=====================================================  ===========================================================
arrays                                                 computed: the order of a pass follows from a seed
``PyDataset``, ``Sequence``                            computed likewise; batches are made by index
iterables and iterators that save their own state      given back that state
objects that milepost tracks, ``tf.data`` iterators    restored with the checkpoint
other iterables, such as PyTorch's ``DataLoader``      read again from the beginning of the pass, from the random state and
                                                       the attributes of then (`milepost.callbacks.own_state`); the last
                                                       batch must come out as it was, or it is an error
=====================================================  ===========================================================

State that an object tells after the last batch of a pass may mean that the pass is finished, or that the next one is to
begin. One rule is right for both, in runs that are resumed and in those that are not: a pass is read until there is no
more before its end is saved, and an iterator that begins a pass and is empty at once was that of the pass before, so the
object is asked for another one. If that is empty, too, the object goes back to the state that it had before the first pass.

Generators and other iterators without state cannot be read twice, so they are refused.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any

from milepost.adapters.packed import PackedAdapter
from milepost.callbacks.reachable import STATE_METHODS
from milepost.errors import UnsupportedError
from milepost.graph import PythonState, TensorState
from milepost.graph.adapter import adapter_of

Attach = Callable[[Any], None]
"""Gives an object the values that the checkpoint being resumed holds for the data."""


class Source(abc.ABC):
    """Batches, in passes.

    Attributes:
        length: Batches in a pass, or None if that is not known or there is no end.
        looks_ahead: Whether only a look at the next batch tells if state belongs to the pass that is read or to the next.
        is_stream: Whether there is one pass only, which goes on in every epoch.
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
        """Lets the pass end, after all of its `length` batches, where nobody has read on to find that it has no more."""

    @abc.abstractmethod
    def save(self) -> Any:
        """What `load` needs to come back to where the source is now, as plain data."""

    def save_end(self) -> Any:
        """What `save` would return, for a pass that has ended."""
        return self.save()

    def check(self, state: Any) -> None:  # noqa: B027 - right for those that cannot tell
        """Sees, before anything is read, whether ``state`` can be one of this source.

        Raises:
            MismatchError: It was saved with other data.
        """

    @abc.abstractmethod
    def load(self, state: Any, number: int, index: int, ended: bool, attach: Attach) -> None:
        """Comes back to a place.

        Args:
            state: What `save` returned there.
            number: Of the pass.
            index: How many batches of it had been read.
            ended: Whether those were all; the next call is `begin` then.
            attach: For sources whose state is not in ``state``.
        """

    def reset(self, state: Any) -> None:  # noqa: B027 - right for those that `begin` takes anywhere
        """Goes back to before the first pass, where ``state`` was saved."""

    def tracked(self) -> Any:
        """An object to be saved with the checkpoint, or None."""
        return None

    def stand_in(self) -> Any:
        """An object like `tracked` that may be restored at any time, or None."""
        return None


def state_of(data: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """How an object's own state is got and set, if it has any."""
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
    """The error for data that is no source."""
    return UnsupportedError(
        f"this data cannot return to a saved position: {reason}",
        key="data",
        expected="arrays, a tf.data.Dataset, a PyDataset, a DataLoader, an iterable, or an iterator that saves its state",
        found=f"a {type(data).__name__}",
        remedy="give the data get_state() and set_state(), or state_dict() and load_state_dict()",
    )
