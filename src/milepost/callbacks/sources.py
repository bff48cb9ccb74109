"""Where batches come from, and how to come back to any place in there.

A source is read in *passes*, each from the first batch to the last. How exactly a place is found again:

=====================================================  ===========================================================
arrays                                                 computed: the order of a pass follows from a seed
``PyDataset``, ``Sequence``                            computed likewise; batches are made by index
iterables and iterators that save their own state      given back that state
objects that milepost tracks, ``tf.data`` iterators    restored with the checkpoint
other iterables, such as PyTorch's ``DataLoader``      read again from the beginning of the pass, from the same random
                                                       state; the last batch must come out as it was, or it is an error
=====================================================  ===========================================================

Generators and other iterators without state cannot be read twice, so they are refused.
"""

from __future__ import annotations

import abc
import itertools
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from milepost.callbacks.random_state import random_state, set_random_state
from milepost.checkpoint import Checkpoint
from milepost.coding.crc32c import crc32c
from milepost.engine.options import CheckpointOptions
from milepost.errors import MismatchError, UnsupportedError
from milepost.graph import PythonState, TensorState
from milepost.graph.adapter import adapter_of
from milepost.storage import MemoryStorage

Attach = Callable[[Any], None]
"""Gives an object the values that the checkpoint being resumed holds for the data."""


class Source(abc.ABC):
    """Batches, in passes.

    Attributes:
        length: Batches in a pass, or None if that is not known or there is no end.
    """

    length: int | None = None

    @abc.abstractmethod
    def begin(self, number: int) -> None:
        """Starts a pass; the first is number 0."""

    @abc.abstractmethod
    def next(self) -> Any:
        """The next batch of the pass.

        Raises:
            StopIteration: There is none.
        """

    @abc.abstractmethod
    def save(self) -> Any:
        """What `load` needs to come back to where the source is now, as plain data."""

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


class IndexedSource(Source):
    """Batches that are made by number, in the order of the numbers or in one that follows from a seed."""

    def __init__(self, length: int, shuffle: bool, seed: int | None) -> None:
        self.length = length
        self._shuffle = shuffle
        self._seed = secrets.randbits(63) if seed is None else seed
        self._number = 0
        self._index = 0

    @abc.abstractmethod
    def batch(self, number: int, index: int) -> Any:
        """Makes one batch."""

    def begin(self, number: int) -> None:
        self._number, self._index = number, 0

    def next(self) -> Any:
        assert self.length is not None
        if self._index >= self.length:
            raise StopIteration
        self._index += 1
        return self.batch(self._number, self._index - 1)

    def save(self) -> Any:
        return {"seed": self._seed, "length": self.length}

    def check(self, state: Any) -> None:
        if state["length"] != self.length:
            raise MismatchError(
                "the data has another number of batches than when this checkpoint was saved",
                key="data",
                expected=state["length"],
                found=self.length,
                remedy="resume with the same data and batch_size, or start in another directory",
            )

    def load(self, state: Any, number: int, index: int, ended: bool, attach: Attach) -> None:
        self._seed = state["seed"]
        self._number, self._index = number, index

    def order(self, number: int, count: int) -> np.ndarray[Any, Any]:
        """The order of ``count`` things in a pass."""
        if not self._shuffle:
            return np.arange(count)
        return np.random.Generator(np.random.Philox([self._seed, number])).permutation(count)


class ArraySource(IndexedSource):
    """Rows of arrays, shuffled anew in each pass unless told otherwise.

    Args:
        data: Arrays, and dicts, lists and tuples of them, of the same length; None is nothing.
        batch_size: Rows in a batch; the last of a pass may have fewer.
        shuffle: Whether to shuffle rows.
        seed: Of the shuffling; None draws one, which is saved.
    """

    def __init__(self, data: Any, batch_size: int, shuffle: bool, seed: int | None) -> None:
        lengths = {len(leaf) for leaf in leaves(data)}
        if len(lengths) != 1 or 0 in lengths:
            raise UnsupportedError(
                "arrays of one data set have the same length", expected="one length", found=sorted(lengths)
            )
        (self._rows,) = lengths
        self._data = data
        self._batch_size = batch_size
        self._permutation: tuple[tuple[int, int] | None, np.ndarray[Any, Any]] = (None, np.arange(0))
        super().__init__(-(-self._rows // batch_size), shuffle, seed)

    def batch(self, number: int, index: int) -> Any:
        which = (self._seed, number)
        if self._permutation[0] != which:
            self._permutation = which, self.order(number, self._rows)
        rows = self._permutation[1][index * self._batch_size : (index + 1) * self._batch_size]
        return map_leaves(lambda leaf: leaf[rows], self._data)


class SequenceSource(IndexedSource):
    """A ``keras.utils.PyDataset`` or ``Sequence``, whose batches are made one after the other by their numbers."""

    def __init__(self, dataset: Any, shuffle: bool, seed: int | None) -> None:
        length = dataset.num_batches if hasattr(dataset, "num_batches") else len(dataset)
        if length is None:
            raise _cannot_be_positioned(dataset, "it has no end, so it has no passes to be somewhere in")
        self._state = state_of(dataset)
        for name in ("on_epoch_begin", "on_epoch_end"):
            if self._state is None and _is_overridden(dataset, name):
                raise _cannot_be_positioned(dataset, f"its {name}() changes it in a way that is not saved")
        self._dataset = dataset
        self._permutation: tuple[tuple[int, int] | None, np.ndarray[Any, Any]] = (None, np.arange(0))
        self._is_open = False
        super().__init__(length, shuffle, seed)

    def begin(self, number: int) -> None:
        self._close()
        super().begin(number)
        _call(self._dataset, "on_epoch_begin")
        self._is_open = True

    def next(self) -> Any:
        try:
            return super().next()
        except StopIteration:
            self._close()
            raise

    def batch(self, number: int, index: int) -> Any:
        which = (self._seed, number)
        if self._permutation[0] != which:
            assert self.length is not None
            self._permutation = which, self.order(number, self.length)
        return self._dataset[int(self._permutation[1][index])]

    def save(self) -> Any:
        return {**super().save(), "open": self._is_open, "state": self._state[0]() if self._state else None}

    def load(self, state: Any, number: int, index: int, ended: bool, attach: Attach) -> None:
        super().load(state, number, index, ended, attach)
        if self._state is not None:
            self._state[1](state["state"])
        self._is_open = state["open"]

    def reset(self, state: Any) -> None:
        if self._state is not None:
            self._state[1](state["state"])
        self._is_open = False

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            _call(self._dataset, "on_epoch_end")


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
        raise _cannot_be_positioned(data, "it is neither arrays nor an iterable of batches")
    if state_of(data) is not None:
        return StatefulSource(data)
    if hasattr(data, "__next__"):
        if adapter_of(data) is not None:
            return TrackedSource(data)
        raise _cannot_be_positioned(data, "an iterator without state cannot be read twice")
    iterator = None if _is_loader(data) else iter(data)
    if iterator is not None and state_of(iterator) is not None:
        return StatefulSource(data)
    if iterator is not None and adapter_of(iterator) is not None:
        return TrackedSource(data)
    return ReplayedSource(data)


def state_of(data: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """How an object's own state is got and set, if it has any."""
    for get, put in (("get_state", "set_state"), ("state_dict", "load_state_dict")):
        if callable(getattr(data, get, None)) and callable(getattr(data, put, None)):
            return getattr(data, get), getattr(data, put)
    if isinstance(data, (PythonState, TensorState)):
        return data.serialize, data.deserialize
    return None


def leaves(data: Any) -> Iterator[Any]:
    """Everything in nested dicts, lists and tuples but None."""
    if isinstance(data, dict):
        for name in data:
            yield from leaves(data[name])
    elif isinstance(data, (list, tuple)):
        for each in data:
            yield from leaves(each)
    elif data is not None:
        yield data


def map_leaves(function: Callable[[Any], Any], data: Any) -> Any:
    """The same nested dicts, lists and tuples with ``function`` of everything in them but None."""
    if isinstance(data, dict):
        return {name: map_leaves(function, each) for name, each in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(map_leaves(function, each) for each in data)
    return None if data is None else function(data)


def checksum(batch: Any) -> int:
    """CRC-32C of the bytes of all arrays in a batch."""
    value = 0
    for leaf in leaves(batch):
        array = np.ascontiguousarray(leaf)
        value = crc32c(array.reshape(-1).view(np.uint8), value) if array.dtype.kind != "O" else value
    return value


def _is_loader(data: Any) -> bool:
    return any(base.__name__ == "DataLoader" and base.__module__.startswith("torch.") for base in type(data).__mro__)


def _length(data: Any) -> int | None:
    try:
        return len(data)
    except TypeError:
        return None


def _call(data: Any, name: str) -> None:
    method = getattr(data, name, None)
    if callable(method):
        method()


def _is_overridden(data: Any, name: str) -> bool:
    owner = next((base for base in type(data).__mro__ if name in vars(base)), object)
    return owner is not object and owner.__module__.partition(".")[0] not in ("keras", "tf_keras")


def _cannot_be_positioned(data: Any, reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"no place in this data can be found again: {reason}",
        key="data",
        expected="arrays, a tf.data.Dataset, a PyDataset, a DataLoader, an iterable, or an iterator that saves its state",
        found=f"a {type(data).__name__}",
        remedy="give it get_state() and set_state(), or state_dict() and load_state_dict()",
    )
