"""Sources that are read one batch after the other: by their own state, as objects of the graph, or once more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from milepost.callbacks.batches import checksum
from milepost.callbacks.indexed import SequenceSource
from milepost.callbacks.random_state import random_state, set_random_state
from milepost.callbacks.sources import Attach, Source, cannot_be_positioned, state_of
from milepost.checkpoint import Checkpoint
from milepost.engine.options import CheckpointOptions
from milepost.errors import MismatchError
from milepost.graph.adapter import adapter_of
from milepost.storage import MemoryStorage


class StatefulSource(Source):
    """An iterable or iterator that saves its own state: ``get_state``, ``state_dict`` or ``serialize``."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self.length = _length(data)
        self._iterator: Iterator[Any] | None = None

    def begin(self, number: int) -> None:
        self._iterator = iter(self._data)

    def next(self) -> Any:
        assert self._iterator is not None
        return next(self._iterator)

    def save(self) -> Any:
        state = self._state()
        return None if state is None else state[0]()

    def load(self, state: Any, number: int, index: int, ended: bool, attach: Attach) -> None:
        own = state_of(self._data)
        if own is not None:
            own[1](state)
            self._iterator = None if ended else iter(self._data)
        elif not ended:
            self._iterator = iter(self._data)
            held = self._state()
            assert held is not None, "make_source() looked"
            held[1](state)

    def reset(self, state: Any) -> None:
        own = state_of(self._data)
        if own is not None:
            own[1](state)
        self._iterator = None

    def _state(self) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
        return state_of(self._data) or (None if self._iterator is None else state_of(self._iterator))


class Iterators:
    """The iterators of a data set, counted: in which order a shuffle gives its elements depends on how many there were.

    A restored iterator comes from a copy, because restoring it moves the shuffles of the data set that made it on.

    Args:
        data: The data set.
        copy: Another one like it that was never read, if one can be made.
    """

    def __init__(self, data: Any, copy: Any = None) -> None:
        self._data = data
        self._copy = data if copy is None else copy
        self.made = 0
        self.current: Iterator[Any] | None = None

    def new(self) -> Iterator[Any]:
        """Makes the next one."""
        self.made += 1
        self.current = iter(self._data)
        return self.current

    def restored(self, number: int, attach: Attach | None) -> Iterator[Any] | None:
        """Stands where ``number`` iterators have been made, the last of which is restored unless it was at its end."""
        while self.made < number:
            self.new()
        if attach is not None:
            self.current = iter(self._copy)
            attach(self.current)
        return self.current

    def stand_in(self) -> Iterator[Any]:
        """An iterator that nobody reads."""
        return iter(self._copy)


class TrackedSource(Source):
    """An iterator that milepost saves as part of the object graph, or data whose iterators are such."""

    def __init__(self, data: Any, copy: Any = None) -> None:
        self.length = _length(data)
        self._iterators = Iterators(data, copy)
        self._tracked = data if hasattr(data, "__next__") else None
        self._memory = CheckpointOptions(storage=MemoryStorage())
        if self._tracked is not None:
            Checkpoint(data=data).write("initial", self._memory)

    def begin(self, number: int) -> None:
        self._iterators.new()

    def next(self) -> Any:
        assert self._iterators.current is not None
        return next(self._iterators.current)

    def save(self) -> Any:
        return {"iterators": self._iterators.made}

    def load(self, state: Any, number: int, index: int, ended: bool, attach: Attach) -> None:
        if self._tracked is not None:
            attach(self._tracked)
        self._iterators.restored(state["iterators"], None if ended or self._tracked is not None else attach)

    def reset(self, state: Any) -> None:
        if self._tracked is not None:
            Checkpoint(data=self._tracked).read("initial", self._memory)

    def tracked(self) -> Any:
        return self._tracked or self._iterators.current

    def stand_in(self) -> Any:
        return self._tracked or self._iterators.stand_in()


class ReplayedSource(Source):
    """An iterable that gives the same batches again when it is read again from the same random state."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self.length = _length(data)
        self._random: dict[str, Any] = {}
        self._iterator: Iterator[Any] | None = None
        self._last: Any = None

    def begin(self, number: int) -> None:
        self._random = self._all_random_state()
        self._iterator = iter(self._data)
        self._last = None

    def next(self) -> Any:
        assert self._iterator is not None
        self._last = next(self._iterator)
        return self._last

    def save(self) -> Any:
        return {"random": self._random, "last": None if self._last is None else checksum(self._last)}

    def load(self, state: Any, number: int, index: int, ended: bool, attach: Attach) -> None:
        if ended:
            return
        now = random_state()
        self._set_random_state(state["random"])
        self._random = state["random"]
        self._iterator = iter(self._data)
        count = 0
        for batch in itertools.islice(self._iterator, index):
            self._last = batch
            count += 1
        if count != index or (index and checksum(self._last) != state["last"]):
            raise MismatchError(
                "the data did not come out again as it was when this checkpoint was saved",
                key="data",
                expected=f"the same first {index} batches",
                found=f"{count} batches" if count != index else f"another batch {index - 1}",
                remedy="make it deterministic given the random state of Python, NumPy and PyTorch, or have it save its "
                "own state: get_state() and set_state(), or state_dict() and load_state_dict()",
            )
        set_random_state(now)

    def _all_random_state(self) -> dict[str, Any]:
        state = random_state()
        generator: Any = getattr(self._data, "generator", None)
        if hasattr(generator, "get_state"):  # of a DataLoader
            state["generator"] = generator.get_state()
        return state

    def _set_random_state(self, state: dict[str, Any]) -> None:
        set_random_state(state)
        if "generator" in state:
            self._data.generator.set_state(state["generator"])


def make_source(data: Any, shuffle: bool, seed: int | None) -> Source:
    """The source for data that is not arrays.

    Raises:
        UnsupportedError: No place in it can be found again.
    """
    if hasattr(data, "on_epoch_end") and hasattr(data, "__getitem__"):
        return SequenceSource(data, shuffle, seed)
    if not hasattr(data, "__iter__"):
        raise cannot_be_positioned(data, "it is neither arrays nor an iterable of batches")
    if state_of(data) is not None:
        return StatefulSource(data)
    if hasattr(data, "__next__"):
        if adapter_of(data) is not None:
            return TrackedSource(data)
        raise cannot_be_positioned(data, "an iterator without state cannot be read twice")
    iterator = None if _is_loader(data) else iter(data)
    if iterator is not None and state_of(iterator) is not None:
        return StatefulSource(data)
    if iterator is not None and adapter_of(iterator) is not None:
        return TrackedSource(data)
    return ReplayedSource(data)


def _is_loader(data: Any) -> bool:
    return any(base.__name__ == "DataLoader" and base.__module__.startswith("torch.") for base in type(data).__mro__)


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except TypeError:
        return None
