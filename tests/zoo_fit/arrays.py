"""Arrays, Keras' own classes of data, and ``tf.data``."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from tests.zoo_fit.kinds import BATCH, BATCHES, ROWS, WEIGHT, X, Y, kind

_ORDER_OF_KERAS_2 = "In Keras 2, without `resumable`, a resumed run reads shuffled arrays in another order"


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


@kind("arrays without `resumable`", resumable=False, said=_ORDER_OF_KERAS_2)
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
    "Later passes are exact if every `shuffle` has a seed and `repeat` comes before it; otherwise there is a warning"
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
