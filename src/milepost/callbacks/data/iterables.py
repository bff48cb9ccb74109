"""Sources that are read batch by batch. They return to a position by their state, as tracked objects, or by reading again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

from milepost.adapters.iterators.hugging_face import forget_start, shuffles_in_a_buffer
from milepost.adapters.iterators.pytorch import is_loader, stop_workers
from milepost.adapters.iterators.torchdata import counts_twice, is_graph_of_nodes, is_of_torchdata, start_afresh
from milepost.callbacks.data.batches import checksum
from milepost.callbacks.data.indexed import SequenceSource
from milepost.callbacks.data.own_state import OwnState
from milepost.callbacks.data.sources import Attach, Source, cannot_be_positioned, state_of
from milepost.callbacks.plain_data import random_state, set_random_state
from milepost.checkpoint.checkpoint import Checkpoint
from milepost.engine.options import CheckpointOptions
from milepost.errors import MismatchError, warn
from milepost.graph.adapter import adapter_of
from milepost.storage import MemoryStorage


class StatefulSource(Source):
    """An iterable or iterator that saves its own state: ``get_state``, ``state_dict`` or ``serialize``."""

    def __init__(self, data: Any, own: tuple[Callable[[], Any], Callable[[Any], Any]]) -> None:
        self._data = data
        self._get, self._put = own
        self.length = _length(data)
        self._initial = self._get()
        self._iterator: Iterator[Any] | None = None
        self._is_new = False
        self._was_at_the_end = False
        self.is_stream = hasattr(data, "__next__")
        self.looks_ahead = not self.is_stream

    def begin(self, number: int) -> None:
        self._iterator = iter(self._data)
        self._is_new = not self.is_stream

    def next(self) -> Any:
        assert self._iterator is not None
        is_new, self._is_new = self._is_new, False
        try:
            batch = next(self._iterator)
        except StopIteration:
            if not is_new:
                raise
            batch = self._first()
        forget_start(self._data)
        return batch

    def finish(self) -> None:
        if self._iterator is None or self.is_stream:
            return
        before = self._get()
        if next(self._iterator, _END) is not _END:
            self._put(before)

    def save(self) -> Any:
        return self._get()

    def load(self, state: Any, number: int, index: int, ended: bool, attach: Attach) -> None:
        self._put(state)
        self._iterator = None if ended else iter(self._data)
        self._is_new = False

    def reset(self, state: Any) -> None:
        self._put(state)
        self._iterator = None

    def _first(self) -> Any:
        """The first batch of a pass if the iterator is empty because it belongs to the previous pass."""
        forget_start(self._data)
        self._iterator = iter(self._data)
        batch = next(self._iterator, _END)
        if batch is not _END:
            return batch
        if not self._was_at_the_end:
            self._was_at_the_end = True
            warn(
                f"this {type(self._data).__name__} returned no batch after the end of a pass, so each further pass starts from the "
                "state before the first pass: if the data is shuffled, every pass has the same order"
            )
        self._put(self._initial)
        self._iterator = iter(self._data)
        return next(self._iterator)


class LoaderSource(StatefulSource):
    """A loader of torchdata, which saves its position, with a data set and samplers that may have state of their own.

    Data set and samplers get their state at the start of the pass before the loader is restored, because the loader may
    read the pass again up to the position. Then they get their state at the position.
    """

    def __init__(self, data: Any, own: tuple[Callable[[], Any], Callable[[Any], Any]]) -> None:
        self._held = OwnState(data, trusted=True, random_only=not is_loader(data))
        super().__init__(data, own)
        self._begun: dict[str, Any] = {}

    def begin(self, number: int) -> None:
        self._begun = self._held.now()
        super().begin(number)

    def save(self) -> Any:
        return {"loader": super().save(), "begun": self._begun, "held": self._held.now()}

    def load(self, state: Any, number: int, index: int, ended: bool, attach: Attach) -> None:
        if "loader" not in state:  # the first format
            super().load(state, number, index, ended, attach)
            return
        self._begun = state["begun"]
        self._held.put(self._begun)
        if not ended or not start_afresh(self._data):
            super().load(state["loader"], number, index, ended, attach)
        self._held.put(state["held"])

    def reset(self, state: Any) -> None:
        self._held.reset()
        super().reset(state["loader"])


class Iterators:
    """The iterators of a data set and their number, on which the order of shuffles depends.

    A restored iterator comes from a copy of the data set, because a restore advances the shuffles of the data set that
    made it.

    Args:
        data: The data set.
        copy: A copy of it that was never read, if one can be made.
    """

    def __init__(self, data: Any, copy: Any = None) -> None:
        self._data = data
        self._copy = data if copy is None else copy
        self.made = 0
        self.current: Iterator[Any] | None = None

    def new(self) -> Iterator[Any]:
        """Makes the next iterator."""
        self.made += 1
        self.current = iter(self._data)
        return self.current

    def again(self, begin: Callable[[Any], None]) -> None:
        """Restarts the present iterator, which the trainer holds, as the next one."""
        self.made += 1
        begin(self.current)

    def restored(self, number: int, attach: Attach | None) -> Iterator[Any] | None:
        """Returns to the state after ``number`` iterators. The last of them is restored unless it has ended."""
        while self.made < number:
            self.new()
        if attach is not None:
            self.current = iter(self._copy)
            attach(self.current)
        return self.current

    def stand_in(self) -> Iterator[Any]:
        """An iterator that is never read."""
        return iter(self._copy)


class TrackedSource(Source):
    """An iterator that milepost tracks, or data with such iterators."""

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
    """An iterable that returns the same batches when it is read again from the same state.

    The state is the random state of the program and the state in the iterable itself, both at the start of the pass. If
    the iterators of the iterable have state, they get it, and nothing is read again.
    """

    def __init__(self, data: Any, own: OwnState) -> None:
        self._data = data
        self._own = own
        self.length = _length(data)
        self._random: dict[str, Any] = {}
        self._held: dict[str, Any] = {}
        self._iterator: Iterator[Any] | None = None
        self._last: Any = None

    def begin(self, number: int) -> None:
        self._random = random_state()
        self._held = self._own.now()
        self._start()
        self._last = None

    def next(self) -> Any:
        assert self._iterator is not None
        self._last = next(self._iterator)
        return self._last

    def finish(self) -> None:
        if self._iterator is not None:
            next(self._iterator, None)

    def save(self) -> Any:
        position = self._position()
        return {
            "random": self._random,
            "held": self._held,
            "last": None if self._last is None else checksum(self._last),
            "iterator": None if position is None else position[0](),
        }

    def save_end(self) -> Any:
        return {"held": self._own.now()}

    def load(self, state: Any, number: int, index: int, ended: bool, attach: Attach) -> None:
        if ended:
            if "held" in state:  # missing in checkpoints of versions that did not save it
                self._own.put(state["held"])
            return
        now = random_state()
        set_random_state(state["random"])
        self._random = state["random"]
        self._held = state.get("held", {})
        self._own.put(self._held)
        self._start()
        methods = self._position()
        if methods is not None and state.get("iterator") is not None:
            methods[1](state["iterator"])
        else:
            self._read_again(index, state["last"])
        set_random_state(now)

    def reset(self, state: Any) -> None:
        self._own.reset()
        self._iterator = None

    def _start(self) -> None:
        stop_workers(self._data)
        self._iterator = iter(self._data)

    def _position(self) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
        """The functions that get and set the state of the iterator, if it has any."""
        return None if self._iterator is None or is_loader(self._data) else state_of(self._iterator)

    def _read_again(self, index: int, last: int | None) -> None:
        assert self._iterator is not None
        count = 0
        for batch in itertools.islice(self._iterator, index):
            self._last = batch
            count += 1
        if count != index or (index and checksum(self._last) != last):
            raise MismatchError(
                "the data did not produce the same batches as when this checkpoint was saved",
                key="data",
                expected=f"the same first {index} batches",
                found=f"{count} batches" if count != index else f"a different batch {index - 1}",
                remedy="make the data depend only on the random state of Python, NumPy and PyTorch, or give it "
                "get_state() and set_state(), or state_dict() and load_state_dict()",
            )


_END: Final = object()


def make_source(data: Any, shuffle: bool, seed: int | None) -> Source:
    """The source for data that is not arrays.

    Raises:
        UnsupportedError: The data cannot return to a saved position.
    """
    if hasattr(data, "on_epoch_end") and hasattr(data, "__getitem__"):
        return SequenceSource(data, shuffle, seed)
    if not hasattr(data, "__iter__"):
        raise cannot_be_positioned(data, "it is neither arrays nor an iterable of batches")
    methods = None if _loses_its_place(data) else state_of(data)
    if methods is not None:
        if is_graph_of_nodes(data):
            warn(
                "after a resume, later passes over a Loader of torchdata.nodes may be in a different order, because its samplers do not "
                "save the state of their generators: use a StatefulDataLoader, or a sampler that depends only on the number of the pass"
            )
        return LoaderSource(data, methods) if is_of_torchdata(data) else StatefulSource(data, methods)
    if hasattr(data, "__next__"):
        if adapter_of(data) is not None:
            return TrackedSource(data)
        raise cannot_be_positioned(data, "an iterator without state cannot be read twice")
    own_state = OwnState(data)
    if not is_loader(data):
        now = random_state()
        iterator = iter(data)
        own_state.reset()
        set_random_state(now)
        if iterator is data:
            raise cannot_be_positioned(data, "an iterator without state cannot be read twice")
        if state_of(iterator) is None and adapter_of(iterator) is not None:
            return TrackedSource(data)
    return ReplayedSource(data, own_state)


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except TypeError:
        return None


def _loses_its_place(data: Any) -> bool:
    """Whether restoring the state of this data does not return it to its position."""
    return counts_twice(data) or shuffles_in_a_buffer(data.dataset if is_loader(data) else data)
