"""Sources that make a batch from its index: arrays, and the data classes of Keras."""

from __future__ import annotations

import abc
import secrets
from typing import Any, Final

import numpy as np

from milepost.callbacks.data.batches import leaves, map_leaves
from milepost.callbacks.data.fingerprints import array_fingerprint
from milepost.callbacks.data.own_state import OwnState
from milepost.callbacks.data.sources import Attach, Source, cannot_be_positioned, state_of
from milepost.errors import MismatchError, UnsupportedError

_NAMES: Final = {
    "length": "a different number of batches",
    "batch_size": "a different batch_size",
    "shuffle": "a different shuffle",
    "arrays": "different values, types or shapes",
}


class IndexedSource(Source):
    """Batches that are made by index, in the order of the indices or in an order determined by a seed."""

    def __init__(self, length: int, shuffle: bool, seed: int | None) -> None:
        self.length = length
        self._shuffle = shuffle
        self._given = seed
        self._seed = secrets.randbits(63) if seed is None else seed
        self._number = 0
        self._index = 0

    @property
    def needs_seed(self) -> bool:
        """Whether the data is shuffled, and the program has given no seed."""
        return self._shuffle and self._given is None

    def draw(self, seed: int) -> None:
        """Sets the seed of a new run. A resumed run still takes the saved one."""
        self._seed = seed

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
        return {"seed": self._seed, **self._facts()}

    def check(self, state: Any) -> None:
        for name, fact in self._facts().items():
            if state.get(name, fact) != fact:
                raise MismatchError(
                    f"the data has {_NAMES[name]} than when this checkpoint was saved",
                    key="data",
                    expected=state[name],
                    found=fact,
                    remedy="resume with the same data, batch_size and shuffle, or use another directory",
                )
        if self._given is not None and self._given != state["seed"]:
            raise MismatchError(
                "the data is shuffled with a different seed than when this checkpoint was saved",
                key="data",
                expected=state["seed"],
                found=self._given,
                remedy="resume with the same seed or without one, or use another directory",
            )

    def _facts(self) -> dict[str, Any]:
        """The facts that must not change, by the keys of `_NAMES`."""
        return {"length": self.length, "shuffle": self._shuffle}

    def load(self, state: Any, number: int, index: int, ended: bool, attach: Attach) -> None:
        self._seed = state["seed"]
        self._number, self._index = number, index

    def order(self, number: int, count: int) -> np.ndarray[Any, Any]:
        """The order of ``count`` batches or rows in a pass."""
        if not self._shuffle:
            return np.arange(count)
        return np.random.Generator(np.random.Philox([self._seed, number])).permutation(count)


class ArraySource(IndexedSource):
    """Rows of arrays, shuffled in each pass by default.

    Args:
        data: Arrays, and dicts, lists and tuples of them, of the same length. None is ignored.
        batch_size: The number of rows in a batch; the last batch of a pass may have fewer.
        shuffle: Whether to shuffle rows.
        seed: The seed of the shuffling. With None, one is drawn and saved.
    """

    def __init__(self, data: Any, batch_size: int, shuffle: bool, seed: int | None) -> None:
        lengths = {len(leaf) for leaf in leaves(data)}
        if len(lengths) != 1 or 0 in lengths:
            raise UnsupportedError(
                "arrays of one data set must have the same length",
                key="data",
                expected="one length",
                found=sorted(lengths),
                remedy="pass arrays with the same number of rows",
            )
        (self._rows,) = lengths
        self._data = data
        self._batch_size = batch_size
        self._permutation: tuple[tuple[int, int] | None, np.ndarray[Any, Any]] = (None, np.arange(0))
        self._arrays = [list(map(_listed, array_fingerprint(leaf))) for leaf in leaves(data)]
        super().__init__(-(-self._rows // batch_size), shuffle, seed)

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "batch_size": self._batch_size, "arrays": self._arrays}

    def batch(self, number: int, index: int) -> Any:
        which = (self._seed, number)
        if self._permutation[0] != which:
            self._permutation = which, self.order(number, self._rows)
        rows = self._permutation[1][index * self._batch_size : (index + 1) * self._batch_size]
        return map_leaves(lambda leaf: leaf[rows], self._data)


class SequenceSource(IndexedSource):
    """A ``keras.utils.PyDataset`` or ``Sequence``. It makes its batches one at a time, from their indices."""

    def __init__(self, dataset: Any, shuffle: bool, seed: int | None) -> None:
        length = dataset.num_batches if hasattr(dataset, "num_batches") else len(dataset)
        if length is None:
            raise cannot_be_positioned(dataset, "it has no end, so its positions belong to no pass")
        self._state = state_of(dataset)
        for name in ("on_epoch_begin", "on_epoch_end"):
            if self._state is None and _is_overridden(dataset, name):
                raise cannot_be_positioned(dataset, f"its {name}() changes it in a way that is not saved")
        self._held = None if self._state else OwnState(dataset)
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
        state = self._held.now() if self._held else self._state[0]() if self._state else None
        return {**super().save(), "open": self._is_open, "held" if self._held else "state": state}

    def load(self, state: Any, number: int, index: int, ended: bool, attach: Attach) -> None:
        super().load(state, number, index, ended, attach)
        self._put(state)
        self._is_open = state["open"]

    def reset(self, state: Any) -> None:
        self._put(state)
        self._is_open = False

    def _put(self, state: Any) -> None:
        if self._state is not None:
            self._state[1](state["state"])
        elif self._held is not None:
            self._held.put(state.get("held", {}))

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            _call(self._dataset, "on_epoch_end")


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _call(data: Any, name: str) -> None:
    method = getattr(data, name, None)
    if callable(method):
        method()


def _is_overridden(data: Any, name: str) -> bool:
    owner = next((base for base in type(data).__mro__ if name in vars(base)), object)
    return owner is not object and owner.__module__.partition(".")[0] not in ("keras", "tf_keras")
