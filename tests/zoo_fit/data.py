"""The kinds of data that runs of ``fit()`` read."""

from __future__ import annotations

import importlib
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import milepost

ROWS, BATCH, EPOCHS = 14, 4, 3
BATCHES = -(-ROWS // BATCH)
X = np.random.RandomState(0).rand(ROWS, 3).astype("float32")
Y = (X.sum(axis=1, keepdims=True) * 3 - 1).astype("float32")
WEIGHT = np.linspace(0.5, 2, ROWS).astype("float32")


@dataclass(frozen=True)
class Data:
    """A kind of data.

    Attributes:
        make: Called with the package of Keras and the callback; returns what is passed to ``fit()`` as ``x``, and its
            other arguments.
        needs: Packages without which there is no such data.
        said: A sentence of ``docs/keras_fit.md`` which says that it is inexact, and why.
        dict_inputs: Whether the model gets a dict.
        resumable: Whether it can be resumed within an epoch, too.
    """

    make: Callable[[Any, Any], tuple[Any, dict[str, Any]]]
    needs: tuple[str, ...] = ()
    said: str = ""
    dict_inputs: bool = False
    resumable: bool = True


DATA: dict[str, Data] = {}
"""All kinds, by what the table calls them."""


def kind(name: str, *needs: str, **settings: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function that makes the data; it returns ``x``, or ``x`` and arguments of ``fit()``."""

    def register(make: Callable[..., Any]) -> Callable[..., Any]:
        def both(keras: Any, callback: Any) -> tuple[Any, dict[str, Any]]:
            made = make(keras, callback)
            return made if isinstance(made, tuple) else (made, {})

        DATA[name] = Data(both, needs, **settings)
        return make

    return register


# Arrays and what is like them.


@kind("arrays, shuffled")
def _arrays(keras, callback):
    return callback.resumable(X, Y, batch_size=BATCH, seed=7)


@kind("arrays, in order")
def _ordered(keras, callback):
    return callback.resumable(X, Y, batch_size=BATCH, shuffle=False)


@kind("arrays with `sample_weight`")
def _weighted(keras, callback):
    return callback.resumable(X, Y, WEIGHT, batch_size=BATCH, seed=7)


@kind("dicts of arrays", dict_inputs=True)
def _dicts(keras, callback):
    return callback.resumable({"a": X, "b": X[:, :1] * 2}, Y, batch_size=BATCH, seed=7)


@kind("arrays, a seed of their own")
def _unseeded(keras, callback):
    return callback.resumable(X, Y, batch_size=BATCH)


@kind("arrays, `steps_per_epoch` less than a pass")
def _short(keras, callback):
    return callback.resumable(X, Y, batch_size=BATCH, seed=7), {"steps_per_epoch": BATCHES - 1}


@kind("arrays, `steps_per_epoch` more than a pass")
def _long(keras, callback):
    return callback.resumable(X, Y, batch_size=BATCH, seed=7), {"steps_per_epoch": BATCHES + 1}


@kind("arrays without `resumable`", resumable=False)
def _plain(keras, callback):
    return X, {"y": Y, "batch_size": BATCH}


@kind("tensors of PyTorch", "torch")
def _torch_tensors(keras, callback):
    import torch

    return callback.resumable(torch.tensor(X), torch.tensor(Y), batch_size=BATCH, seed=7)


@kind("tensors of TensorFlow", "tensorflow")
def _tensorflow_tensors(keras, callback):
    import tensorflow as tf

    return callback.resumable(tf.constant(X), tf.constant(Y), batch_size=BATCH, seed=7)


@kind("`pandas.DataFrame`", "pandas")
def _frame(keras, callback):
    pd: Any = importlib.import_module("pandas")
    return callback.resumable(pd.DataFrame(X), pd.DataFrame(Y), batch_size=BATCH, seed=7)


# Keras' own classes of data.


def _numbered(keras: Any, **members: Any) -> Any:
    base = getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence

    def item(self, number):
        rows = np.arange(ROWS)[number * BATCH : (number + 1) * BATCH]
        rows = self.order[rows] if hasattr(self, "order") else rows
        return X[rows], Y[rows]

    return type("Numbered", (base,), {"__len__": lambda self: BATCHES, "__getitem__": item, **members})()


@kind("`PyDataset`, `Sequence`")
def _py_dataset(keras, callback):
    return callback.resumable(_numbered(keras), seed=7)


@kind("`PyDataset`, in order")
def _py_dataset_in_order(keras, callback):
    return callback.resumable(_numbered(keras), shuffle=False)


def _reshuffle(self):
    self.passes = getattr(self, "passes", 0) + 1
    self.order = np.random.default_rng(self.passes).permutation(ROWS)


@kind("`PyDataset` with `on_epoch_end()`")
def _py_dataset_that_changes(keras, callback):
    return callback.resumable(_numbered(keras, on_epoch_end=_reshuffle), shuffle=False)


@kind("`PyDataset` with `on_epoch_end()` and state")
def _py_dataset_with_state(keras, callback):
    def put(self, state):
        self.passes = state["passes"] - 1
        _reshuffle(self)

    state = {"get_state": lambda self: {"passes": getattr(self, "passes", 0)}, "set_state": put}
    return callback.resumable(_numbered(keras, on_epoch_end=_reshuffle, **state), shuffle=False)


@kind("`PyDataset` that shuffles with NumPy's global state")
def _py_dataset_global(keras, callback):
    def item(self, number):
        rows = np.random.permutation(ROWS)[:BATCH]
        return X[rows], Y[rows]

    return callback.resumable(_numbered(keras, __getitem__=item), seed=7)


# tf.data.


def _rows() -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((X, Y))


@kind("`tf.data`, in order", "tensorflow")
def _dataset(keras, callback):
    return callback.resumable(_rows().batch(BATCH))


@kind("`tf.data`, seeded shuffle", "tensorflow")
def _dataset_seeded(keras, callback):
    return callback.resumable(_rows().shuffle(9, seed=4).batch(BATCH).prefetch(2))


@kind("`tf.data`, seeded shuffle, `cache`, `map`", "tensorflow")
def _dataset_mapped(keras, callback):
    mapped = _rows().cache().shuffle(ROWS, seed=4).map(lambda x, y: (x * 2, y), num_parallel_calls=2)
    return callback.resumable(mapped.batch(BATCH).prefetch(2))


@kind("`tf.data`, one order for all passes", "tensorflow")
def _dataset_same(keras, callback):
    return callback.resumable(_rows().shuffle(9, seed=4, reshuffle_each_iteration=False).batch(BATCH))


@kind("`tf.data`, shuffle without a seed after `set_random_seed`", "tensorflow")
def _dataset_global_seed(keras, callback):
    import tensorflow as tf

    tf.random.set_seed(5)
    return callback.resumable(_rows().shuffle(9).batch(BATCH))


_ORDER_OF_LATER_PASSES = (
    "Later passes too, if every `shuffle` has a seed and `repeat` comes before it; otherwise there is a warning"
)


@kind("`tf.data`, shuffle without any seed", "tensorflow", said=_ORDER_OF_LATER_PASSES)
def _dataset_unseeded(keras, callback):
    import tensorflow as tf

    tf.random.set_seed(None)
    return callback.resumable(_rows().shuffle(9).batch(BATCH))


@kind("`tf.data`, `repeat().shuffle()`, `steps_per_epoch`", "tensorflow")
def _dataset_repeated(keras, callback):
    return callback.resumable(_rows().repeat().shuffle(9, seed=4).batch(BATCH)), {"steps_per_epoch": 3}


@kind("`tf.data`, `shuffle().repeat()`, `steps_per_epoch`", "tensorflow", said=_ORDER_OF_LATER_PASSES)
def _dataset_repeated_after(keras, callback):
    return callback.resumable(_rows().shuffle(9, seed=4).repeat().batch(BATCH)), {"steps_per_epoch": 3}


@kind("`tf.data` of unknown length", "tensorflow")
def _dataset_unknown(keras, callback):
    return callback.resumable(_rows().shuffle(9, seed=4).filter(lambda x, y: x[0] > 0.1).batch(BATCH))


@kind("`tf.data`, finite, `steps_per_epoch` less than a pass", "tensorflow")
def _dataset_steps(keras, callback):
    return callback.resumable(_rows().repeat(3).batch(BATCH)), {"steps_per_epoch": 3}


@kind("`tf.data.Dataset.from_generator`", "tensorflow")
def _dataset_generator(keras, callback):
    import tensorflow as tf

    signature = (tf.TensorSpec([3]), tf.TensorSpec([1]))
    data = tf.data.Dataset.from_generator(lambda: zip(X, Y, strict=True), output_signature=signature)
    return callback.resumable(data.batch(BATCH))


# Loaders of PyTorch.


def _pairs() -> Any:
    import torch

    return torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


def _loader(data: Any = None, **arguments: Any) -> Any:
    import torch

    torch.manual_seed(1)
    return torch.utils.data.DataLoader(_pairs() if data is None else data, batch_size=BATCH, **arguments)


def _generator() -> Any:
    import torch

    return torch.Generator().manual_seed(3)


@kind("`DataLoader`, in order", "torch")
def _loader_in_order(keras, callback):
    return callback.resumable(_loader())


@kind("`DataLoader`, shuffled", "torch")
def _loader_shuffled(keras, callback):
    return callback.resumable(_loader(shuffle=True))


@kind("`DataLoader` with `generator`", "torch")
def _loader_generator(keras, callback):
    return callback.resumable(_loader(shuffle=True, generator=_generator()))


@kind("`DataLoader`, sampler with a generator", "torch")
def _loader_sampler(keras, callback):
    import torch

    return callback.resumable(_loader(sampler=torch.utils.data.RandomSampler(_pairs(), generator=_generator())))


@kind("`DataLoader`, weighted sampler with a generator", "torch")
def _loader_weighted(keras, callback):
    import torch

    sampler = torch.utils.data.WeightedRandomSampler(WEIGHT.tolist(), ROWS, generator=_generator())
    return callback.resumable(_loader(sampler=sampler))


@kind("`DataLoader`, sampler of the user's that counts passes", "torch")
def _loader_counting(keras, callback):
    class Sampler:
        passes = 0

        def __len__(self):
            return ROWS

        def __iter__(self):
            self.passes += 1
            return iter(np.random.default_rng(self.passes).permutation(ROWS).tolist())

    return callback.resumable(_loader(sampler=Sampler()))


@kind("`DataLoader`, `num_workers=2`", "torch")
def _loader_workers(keras, callback):
    return callback.resumable(_loader(shuffle=True, num_workers=2))


@kind("`DataLoader`, data set that draws random numbers", "torch")
def _loader_augmenting(keras, callback):
    import torch

    class Noisy(torch.utils.data.Dataset):
        def __len__(self):
            return ROWS

        def __getitem__(self, row):
            return torch.from_numpy(X[row]) + torch.rand(3), torch.from_numpy(Y[row]) + float(np.random.rand())

    return callback.resumable(_loader(Noisy(), shuffle=True))


@kind("`DataLoader` of an `IterableDataset`", "torch")
def _loader_iterable(keras, callback):
    import torch

    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from zip(X, Y, strict=True)

    return callback.resumable(_loader(Rows()))


@kind("`DataLoader` of an `IterableDataset` that counts passes", "torch")
def _loader_iterable_counting(keras, callback):
    import torch

    class Rows(torch.utils.data.IterableDataset):
        passes = 0

        def __iter__(self):
            self.passes += 1
            for row in np.random.default_rng(self.passes).permutation(ROWS):
                yield X[row], Y[row]

    return callback.resumable(_loader(Rows()))


@kind("`DataLoader`, `steps_per_epoch` less than a pass", "torch")
def _loader_steps(keras, callback):
    return callback.resumable(_loader(shuffle=True)), {"steps_per_epoch": BATCHES - 1}


def _stateful(**arguments: Any) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(_pairs(), batch_size=BATCH, shuffle=True, generator=_generator(), **arguments)


@kind("`StatefulDataLoader`", "torchdata")
def _stateful_loader(keras, callback):
    return callback.resumable(_stateful())


@kind("`StatefulDataLoader`, `num_workers=2`", "torchdata")
def _stateful_loader_workers(keras, callback):
    return callback.resumable(_stateful(num_workers=2))


# Iterables and iterators.


def _batches(order: Any) -> Any:
    for start in range(0, ROWS, BATCH):
        rows = np.asarray(order)[start : start + BATCH]
        yield X[rows], Y[rows]


class Stateless:
    """The same batches in each pass."""

    def __iter__(self):
        return _batches(range(ROWS))


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
        return _batches(np.random.default_rng(self.passes).permutation(ROWS))


class OwnRandom:
    """Batches in an order that a generator of its own gives."""

    def __init__(self):
        self.random = np.random.default_rng(3)

    def __iter__(self):
        return _batches(self.random.permutation(ROWS))


class OwnPythonRandom:
    """Batches in an order that a generator of Python's gives."""

    def __init__(self):
        self.random = random.Random(3)

    def __iter__(self):
        return _batches(self.random.sample(range(ROWS), ROWS))


class GlobalRandom:
    """Batches in an order that NumPy's global generator gives."""

    def __iter__(self):
        return _batches(np.random.permutation(ROWS))


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
        batches = list(_batches(np.random.default_rng(self.passes).permutation(ROWS)))
        while self.index < BATCHES:
            self.index += 1
            yield batches[self.index - 1]

    def state_dict(self):
        return {"passes": self.passes, "index": self.index}

    def load_state_dict(self, state):
        self.passes, self.index = state["passes"], state["index"]


class Readings:
    """Endless batches at random, from a generator whose state is given as a dict."""

    def __init__(self):
        self._random = np.random.default_rng(3)

    def __iter__(self):
        return self

    def __next__(self):
        rows = self._random.integers(0, ROWS, BATCH)
        return X[rows], Y[rows]

    def get_state(self):
        return self._random.bit_generator.state

    def set_state(self, state):
        self._random.bit_generator.state = state


class Walk(milepost.Module):
    """Endless batches in order, from a position that is a variable."""

    def __init__(self):
        self.position = milepost.Variable(np.int64(0))

    def __iter__(self):
        return self

    def __next__(self):
        rows = (int(self.position) + np.arange(BATCH)) % ROWS
        self.position.assign_add(BATCH)
        return X[rows], Y[rows]


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
    return callback.resumable(list(_batches(range(ROWS))))


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
    endless = itertools.chain.from_iterable(_batches(range(ROWS)) for _ in itertools.count())
    return callback.resumable(each for each in endless), {"steps_per_epoch": BATCHES}


@kind("iterator without state")
def _iterator(keras, callback):
    return callback.resumable(iter(list(_batches(range(ROWS))) * EPOCHS)), {"steps_per_epoch": BATCHES}


@kind("`datasets.Dataset` in batches", "datasets")
def _hugging_face(keras, callback):
    import datasets

    rows = datasets.Dataset.from_dict({"x": X.tolist(), "y": Y.tolist()}).with_format("torch")
    collate = lambda rows: (np.stack([row["x"] for row in rows]), np.stack([row["y"] for row in rows]))  # noqa: E731
    return callback.resumable(_loader(rows, shuffle=True, collate_fn=collate))


@kind("`datasets.IterableDataset`", "datasets")
def _hugging_face_iterable(keras, callback):
    import datasets

    rows = datasets.Dataset.from_dict({"x": X.tolist(), "y": Y.tolist()}).to_iterable_dataset(num_shards=2)
    collate = lambda rows: tuple(np.array([row[name] for row in rows], "float32") for name in "xy")  # noqa: E731
    return callback.resumable(_loader(rows.shuffle(seed=3, buffer_size=5), collate_fn=collate))


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
