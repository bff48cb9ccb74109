"""Iterables and iterators: of a program's own, and of other libraries."""

from __future__ import annotations

import itertools
import random

import numpy as np

from tests.callbacks.child import Readings, Walk
from tests.zoo_fit.kinds import BATCH, BATCHES, EPOCHS, ROWS, X, Y, batches_of, kind
from tests.zoo_fit.loaders import loader_of


class Stateless:
    """The same batches in each pass."""

    def __iter__(self):
        return batches_of(range(ROWS))


class Sized(Stateless):
    """The same, of known length."""

    def __len__(self):
        return BATCHES


class CountingPasses:
    """Batches in an order that follows from how many passes there were."""

    passes = 0

    def __len__(self):
        return BATCHES

    def __iter__(self):
        self.passes += 1
        return batches_of(np.random.default_rng(self.passes).permutation(ROWS))


class OwnRandom:
    """Batches in an order that a generator of its own gives."""

    def __init__(self):
        self.random = np.random.default_rng(3)

    def __iter__(self):
        return batches_of(self.random.permutation(ROWS))


class OwnPythonRandom:
    """Batches in an order that a generator of Python's gives."""

    def __init__(self):
        self.random = random.Random(3)

    def __iter__(self):
        return batches_of(self.random.sample(range(ROWS), ROWS))


class GlobalRandom:
    """Batches in an order that NumPy's global generator gives."""

    def __iter__(self):
        return batches_of(np.random.permutation(ROWS))


class Cursor:
    """Goes on in its data where the pass before ended, by a count of rows."""

    row = 0

    def __iter__(self):
        for _ in range(BATCHES):
            rows = (self.row + np.arange(BATCH)) % ROWS
            self.row += BATCH - 1
            yield X[rows], Y[rows]


class StatefulIterable:
    """Batches in an order that follows from how many passes there were, with state in the middle of a pass."""

    def __init__(self):
        self.passes = self.index = 0

    def __len__(self):
        return BATCHES

    def __iter__(self):
        if self.index in (0, BATCHES):  # nobody needs to ask for a batch after the last one
            self.index = 0
            self.passes += 1
        batches = list(batches_of(np.random.default_rng(self.passes).permutation(ROWS)))
        while self.index < BATCHES:
            self.index += 1
            yield batches[self.index - 1]

    def state_dict(self):
        return {"passes": self.passes, "index": self.index}

    def load_state_dict(self, state):
        self.passes, self.index = state["passes"], state["index"]


for _name, _class in {
    "iterable, the same in each pass": Stateless,
    "iterable of known length": Sized,
    "iterable that counts its passes": CountingPasses,
    "iterable with a `numpy` generator": OwnRandom,
    "iterable with a `random.Random`": OwnPythonRandom,
    "iterable that uses NumPy's global state": GlobalRandom,
    "iterable that goes on where it ended": Cursor,
    "iterable with `state_dict`": StatefulIterable,
}.items():
    kind(_name)(lambda keras, callback, _class=_class: callback.resumable(_class()))


@kind("list of batches")
def _list(keras, callback):
    return callback.resumable(list(batches_of(range(ROWS))))


@kind("iterable of known length, `steps_per_epoch` less than a pass")
def _sized_steps(keras, callback):
    return callback.resumable(Sized()), {"steps_per_epoch": BATCHES - 1}


@kind("iterator with `get_state`, `steps_per_epoch`")
def _readings(keras, callback):
    return callback.resumable(Readings()), {"steps_per_epoch": BATCHES}


@kind("iterator that is a `milepost.Module`, `steps_per_epoch`")
def _walk(keras, callback):
    return callback.resumable(Walk()), {"steps_per_epoch": BATCHES}


@kind("generator")
def _generated(keras, callback):
    endless = itertools.chain.from_iterable(batches_of(range(ROWS)) for _ in itertools.count())
    return callback.resumable(each for each in endless), {"steps_per_epoch": BATCHES}


@kind("iterator without state")
def _iterator(keras, callback):
    return callback.resumable(iter(list(batches_of(range(ROWS))) * EPOCHS)), {"steps_per_epoch": BATCHES}


@kind("`datasets.Dataset` in batches", "datasets")
def _hugging_face(keras, callback):
    import datasets

    rows = datasets.Dataset.from_dict({"x": X.tolist(), "y": Y.tolist()}).with_format("torch")
    collate = lambda rows: (np.stack([row["x"] for row in rows]), np.stack([row["y"] for row in rows]))  # noqa: E731
    return callback.resumable(loader_of(rows, shuffle=True, collate_fn=collate))


@kind("`datasets.IterableDataset`", "datasets")
def _hugging_face_iterable(keras, callback):
    import datasets

    rows = datasets.Dataset.from_dict({"x": X.tolist(), "y": Y.tolist()}).to_iterable_dataset(num_shards=2)
    collate = lambda rows: tuple(np.array([row[name] for row in rows], "float32") for name in "xy")  # noqa: E731
    return callback.resumable(loader_of(rows.shuffle(seed=3, buffer_size=5), collate_fn=collate))


@kind("`grain.MapDataset.to_iter_dataset()`", "grain")
def _grain(keras, callback):
    import grain

    rows = grain.MapDataset.source([(X[row], Y[row]) for row in range(ROWS)]).seed(3).shuffle()
    return callback.resumable(rows.batch(BATCH).to_iter_dataset())


@kind("`grain` repeated, `steps_per_epoch`", "grain")
def _grain_repeated(keras, callback):
    import grain

    rows = grain.MapDataset.source([(X[row], Y[row]) for row in range(ROWS)]).seed(3).shuffle().repeat()
    return callback.resumable(rows.batch(BATCH).to_iter_dataset()), {"steps_per_epoch": BATCHES}
