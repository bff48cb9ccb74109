"""The position of a ``DataLoader`` of PyTorch in its pass, and how another loader returns to it.

A loader without a state of its own is read again from the start of the pass. It gets the random states that the program had when the
iterator was made and when the first batch was requested, and the values that the data set and the samplers held at these times.
Loaders with a state (torchdata's ``StatefulDataLoader``) get their state instead.

Trainers may read some batches ahead. A batch that was read and not trained is read again with the random state of the first reading.
"""

from __future__ import annotations

import random
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from milepost.adapters.generators import python_state
from milepost.adapters.iterators.pytorch import is_loader, stop_workers
from milepost.adapters.random_state import global_state, set_global_state
from milepost.callbacks.data.own_state import OwnState
from milepost.callbacks.data.sources import state_of
from milepost.errors import MismatchError, UnsupportedError
from milepost.graph.frameworks import imported

_END: Final = object()
_METHOD: Final = "_get_iterator"
"""The method of a loader that makes an iterator."""
_IS_MADE: Final = "_initial_iter_for_state_dict"
"""Whether torchdata's loader has made an iterator that the next pass uses."""
_MOST_AHEAD: Final = 8
"""Batches that a trainer may have read ahead."""


class LoaderPosition:
    """Records and restores the position of a loader. It observes every iterator that the loader makes.

    Args:
        loader: A ``DataLoader``, also one that Accelerate has prepared, or another iterable with a state.

    Raises:
        UnsupportedError: The data holds an iterator, so it cannot be read twice.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = getattr(loader, "base_dataloader", loader)
        self._is_watched = is_loader(self._loader) or isinstance(self._loader, WatchedIterable)
        self._stateful = None if self._is_watched else state_of(self._loader)
        self._begun: dict[str, Any] | None = None
        self._fetches: deque[dict[str, Any]] = deque(maxlen=_MOST_AHEAD)
        self._are_read: deque[bool] = deque(maxlen=_MOST_AHEAD)
        self._count = 0
        self._is_over = self._is_waiting = False
        self._iterator: weakref.ref[_Watched] | None = None
        self._next: dict[str, Any] | None = None
        self._random: dict[str, Any] | None = None
        if self._is_watched:
            stop_workers(self._loader)
            self._own = OwnState(self._loader, trusted=True)
            vars(self._loader)[_METHOD] = _Stand(self)
            if vars(self._loader).get(_IS_MADE):
                self._make_again()

    def _make_again(self) -> None:
        """Makes the iterator of a loader of torchdata that was made before the loader was watched."""
        now = host_state()
        self._loader.load_state_dict({})
        iter(self._loader)
        vars(self._loader)[_IS_MADE] = True
        set_host_state(now)

    def state(self, ahead: int = 0, *, ended: bool = False) -> dict[str, Any]:
        """The position, as plain data.

        Args:
            ahead: How many batches the trainer has read and not trained.
            ended: Whether the trainer asks for a new iterator next.
        """
        if self._stateful is not None:
            return {"kind": "state", "state": self._stateful[0]()}
        if not self._is_watched:
            return {"kind": "none"}
        if self._next is not None:  # nothing was read since it was loaded
            return self._next
        if ended or self._begun is None:
            return {"kind": "between", "held": self._own.now(), "seeds": _seeds(self._loader)}
        fetches = list(self._fetches)[-ahead:] if ahead else []
        ahead = sum(list(self._are_read)[-ahead:]) if ahead else 0  # a loader that has ended reads none
        is_whole = not ahead and self._count == self._begun["length"]
        state = {"kind": "within", **self._begun, "batches": self._count - ahead, "ahead": fetches}
        return {**state, "whole": self._own.now() if is_whole else None}

    def load(self, state: dict[str, Any], random: dict[str, Any]) -> None:
        """Makes the next iterator of the loader continue at the saved position.

        Args:
            state: What `state` returned.
            random: The random state of the program at that time.

        Raises:
            MismatchError: The loader has a different number of batches than the saved one, or a different kind of state.
        """
        self._is_waiting = False
        if self._is_watched and vars(self._loader).get(_IS_MADE):
            self._loader.load_state_dict({})
        kind = "state" if self._stateful is not None else "watched" if self._is_watched else "none"
        saved = {"within": "watched", "between": "watched"}.get(state["kind"], state["kind"])
        if kind != saved:
            raise _other_loader(f"a loader of the kind {saved!r}", f"a {type(self._loader).__name__}")
        for sampler, seed in zip(_seeded(self._loader), state.get("seeds", ()), strict=False):
            sampler.initial_seed = seed
        if self._stateful is not None:
            self._stateful[1](state["state"])
        elif state["kind"] == "between":
            self._own.put(state["held"])
            self._next, self._random = None, random
        elif state["kind"] == "within":
            if state["length"] != _length(self._loader):
                raise _other_loader(f"{state['length']} batches", f"{_length(self._loader)} batches")
            self._next, self._random = state, random

    @property
    def fetched(self) -> int:
        """How many batches of the pass were read."""
        return self._count

    @property
    def has_ended(self) -> bool:
        """Whether an iterator has said that its pass is over."""
        return self._is_over

    @property
    def is_being_read(self) -> bool:
        """Whether the last iterator still exists. A loop that is left before the pass is over drops it."""
        return self._iterator is not None and self._iterator() is not None

    @property
    def is_loaded(self) -> bool:
        """Whether the next iterator returns to a loaded position within a pass."""
        return self._next is not None

    def leave(self) -> None:
        """Goes to the loaded position and ends the pass there, as a loop does that is left."""
        saved = self._next
        if saved is not None:
            iterator = self.new_iterator()
            for _ in saved["ahead"]:
                next(iterator, None)

    def arrived(self) -> dict[str, Any] | None:
        """The random state with which training continues; None if it is the saved one. Call this after the iterator is made."""
        state, self._random = self._random, None
        return state

    def wait(self) -> None:
        """Makes iterators without batches until `load` is called, where a trainer makes some too early."""
        self._is_waiting = True

    def forget(self) -> None:
        """Makes the loader forget the saved position."""
        if self._is_watched:
            vars(self._loader).pop(_METHOD, None)

    def new_iterator(self) -> Iterator[Any]:
        """Calls the loader's own method that makes an iterator."""
        loader = self._loader
        if self._is_waiting:
            return _Nothing()
        make = getattr(type(loader), _METHOD)
        saved, self._next = self._next, None
        if saved is None:
            if self._random is not None:  # the trainer makes this iterator too early
                now = global_state()
                set_global_state(self._random)
            self._begin()
            iterator = make(loader)
            if self._random is not None:
                self._random = global_state()
                set_global_state(now)
            return self._watched(iterator)
        if saved["whole"] is not None:  # nothing is left to be read in this pass
            self._own.put(saved["whole"])
            self._begun = {name: saved[name] for name in ("created", "first", "held", "seeds", "length")}
            self._count = saved["batches"]
            return self._watched(_Nothing())
        now = global_state()
        try:
            self._own.put(saved["held"])
            set_host_state(saved["created"])
            self._begin()
            return self._go_to(self._watched(make(loader)), saved)
        finally:
            set_global_state(now)

    def _watched(self, iterator: Any) -> _Watched:
        watched = _Watched(self, iterator)
        self._iterator = weakref.ref(watched)
        return watched

    def _go_to(self, iterator: Iterator[Any], saved: dict[str, Any]) -> Iterator[Any]:
        assert self._begun is not None
        if saved["first"] is not None:
            set_host_state(saved["first"])
        count = saved["batches"]
        for number in range(count):
            if next(iterator, _END) is _END:
                raise _other_loader(f"at least {count} batches", f"{number} batches")
        if not count and saved["first"] is not None:
            self._begun["first"] = saved["first"]
        return _Again(iterator, saved["ahead"]) if saved["ahead"] else iterator

    def _begin(self) -> None:
        self._begun = {
            "created": host_state(),
            "first": None,
            "held": self._own.now(),
            "seeds": _seeds(self._loader),
            "length": _length(self._loader),
        }
        self._count = 0
        self._is_over = False
        self._fetches.clear()
        self._are_read.clear()

    def _before_fetch(self) -> None:
        assert self._begun is not None
        now = host_state() if self._loader.num_workers == 0 or self._begun["first"] is None else {}
        if self._begun["first"] is None:
            self._begun["first"] = now
        self._fetches.append(now)

    def _after_fetch(self, *, is_over: bool) -> None:
        self._is_over = is_over
        self._count += not is_over
        self._are_read.append(not is_over)


def is_watched(loader: Any) -> bool:
    """Whether a `LoaderPosition` returns the loader to its position."""
    method = getattr(getattr(loader, "base_dataloader", loader), "__dict__", {}).get(_METHOD)
    return isinstance(method, _Stand)


class WatchedIterable:
    """An iterable that is not a ``DataLoader`` and has no state, in a form whose position a `LoaderPosition` can restore.

    Args:
        iterable: The iterable, each of whose iterators begins again.

    Raises:
        UnsupportedError: It is an iterator, so it cannot be read twice.
    """

    num_workers = 0

    def __init__(self, iterable: Any) -> None:
        if isinstance(iterable, Iterator):
            raise UnsupportedError(
                "this data cannot return to a saved position: it is an iterator, which cannot be read twice",
                key="data",
                expected="a DataLoader, or an object whose __iter__() begins again",
                found=f"a {type(iterable).__name__}",
                remedy="pass an object that makes the iterator in __iter__(), or give it state_dict() and load_state_dict()",
            )
        self.iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        make: Any = getattr(self, _METHOD)  # which is replaced in the object
        return make()  # type: ignore[no-any-return]

    def _get_iterator(self) -> Iterator[Any]:
        return iter(self.iterable)

    def __len__(self) -> int:
        return len(self.iterable)

    def __getattr__(self, name: str) -> Any:
        if name == "iterable":  # while it is being made
            raise AttributeError(name)
        return getattr(self.iterable, name)


def watchable(loader: Any) -> Any:
    """A loader, or another iterable in a form whose position can be restored.

    Raises:
        UnsupportedError: It is an iterator without a state.
    """
    return loader if is_loader(loader) or state_of(loader) is not None else WatchedIterable(loader)


class _Stand:
    """Stands in for the method of a loader that makes an iterator."""

    def __init__(self, position: LoaderPosition) -> None:
        self.position = position

    def __call__(self) -> Iterator[Any]:
        return self.position.new_iterator()


class _Watched:
    """An iterator of a loader that reports each request for a batch."""

    def __init__(self, position: LoaderPosition, iterator: Any) -> None:
        self._position = position
        self._iterator = iterator

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._position._before_fetch()
        batch = next(self._iterator, _END)
        self._position._after_fetch(is_over=batch is _END)
        if batch is _END:
            raise StopIteration
        return batch

    def __len__(self) -> int:
        return len(self._iterator)

    def __getattr__(self, name: str) -> Any:
        if name == "_iterator":  # while it is being made
            raise AttributeError(name)
        return getattr(self._iterator, name)


class _Nothing:
    """An iterator of a pass that has ended, also for torchdata's loader."""

    _finished = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        raise StopIteration

    def __len__(self) -> int:
        return 0

    def state_dict(self) -> dict[str, Any]:
        return {}


class _Again:
    """An iterator that reads its next batches with the random states with which they were read before."""

    def __init__(self, iterator: Any, states: list[dict[str, Any]]) -> None:
        self._iterator = iterator
        self._states = deque(states)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._states:
            return next(self._iterator)
        now = global_state()
        state = self._states.popleft()
        try:
            if state:
                set_host_state(state)
            return next(self._iterator)
        finally:
            set_global_state(now)

    def __len__(self) -> int:
        return len(self._iterator)

    def __getattr__(self, name: str) -> Any:
        if name == "_iterator":
            raise AttributeError(name)
        return getattr(self._iterator, name)


def host_state() -> dict[str, Any]:
    """The random state of Python, NumPy, and PyTorch on the CPU, which reading data may use."""
    state: dict[str, Any] = {"python": python_state(random), "numpy": np.random.get_state(legacy=False)}
    torch = imported("torch")
    if torch is not None:
        state["torch"] = {"cpu": torch.get_rng_state().numpy()}
    return state


def set_host_state(state: dict[str, Any]) -> None:
    """Sets what `host_state` returned."""
    set_global_state(state)


def _seeded(loader: Any) -> list[Any]:
    """The samplers of Accelerate in a loader, which choose a seed when they are made."""
    samplers, parts = [], [loader]
    while parts:
        part = parts.pop()
        if hasattr(part, "initial_seed") and hasattr(part, "set_epoch"):
            samplers.append(part)
        inner = [getattr(part, name, None) for name in ("batch_sampler", "sampler")]
        parts += [each for each in inner if each is not None and not any(each is other for other in parts)]
    return samplers


def _seeds(loader: Any) -> list[int]:
    return [sampler.initial_seed for sampler in _seeded(loader)]


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:
        return None


def _other_loader(expected: str, found: str) -> MismatchError:
    return MismatchError(
        "the data is not that of the saved run",
        key="data",
        expected=expected,
        found=found,
        remedy="resume with the same data, batch size and kind of loader, or use another directory",
    )
