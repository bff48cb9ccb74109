"""Turns what a user passes to ``fit()`` into data whose position can be saved."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from milepost.callbacks.data.batches import leaves, map_leaves
from milepost.callbacks.data.class_weights import WeightedSource, with_class_weights
from milepost.callbacks.data.feed import Data, Feed
from milepost.callbacks.data.indexed import ArraySource
from milepost.callbacks.data.iterables import TrackedSource, make_source
from milepost.callbacks.data.sources import Source
from milepost.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Trainer:
    """How a trainer reads data.

    Attributes:
        floatx: The type to which arrays of floating-point numbers are converted.
        in_tensorflow: Whether it reads ``tf.data``.
        placeholders: Whether it reads a batch for every step, trained or not.
        one_iterator: Whether it reads all epochs from one iterator if their number of steps differs from that of a pass.
    """

    floatx: str
    in_tensorflow: bool
    placeholders: bool = False
    one_iterator: bool = False


def make_feed(
    data: tuple[Any, Any, Any],
    batch_size: int,
    shuffle: bool,
    seed: int | None,
    trainer: Trainer,
    class_weight: Mapping[int, float] | None = None,
) -> tuple[Data, Any]:
    """Makes data resumable.

    Args:
        data: ``x``, ``y`` and ``sample_weight``. The last two are None unless ``x`` is arrays.
        batch_size: For arrays.
        shuffle: For arrays, and for batches that are made by number.
        seed: The seed of the shuffling.
        trainer: How the trainer reads data.
        class_weight: The weight of the rows of each class.

    Returns:
        The object that the callback asks for positions, and the one that the trainer reads: the same `Feed`, or a
        ``tf.data.Dataset``.

    Raises:
        UnsupportedError: The data cannot return to a saved position.
    """
    x = data[0]
    if _is_arrays(data):
        if class_weight is not None:
            data = with_class_weights(data, class_weight, trainer.floatx)
        packed = data[: 3 if data[2] is not None else 2 if data[1] is not None else 1]
        arrays = map_leaves(lambda leaf: _array(leaf, trainer.floatx), packed)
        source: Source = ArraySource(arrays, batch_size, shuffle, seed)
    elif data[1] is not None or data[2] is not None:
        raise UnsupportedError(
            "y and sample_weight can be passed only with arrays",
            key="data",
            expected="x that yields tuples (x, y) or (x, y, sample_weight)",
            found=f"a {type(x).__name__} with y or sample_weight",
            remedy="let x yield the targets and weights too",
        )
    elif is_dataset(x):
        from milepost.callbacks.data import tensorflow_data

        tensorflow_data.warn_of_shuffles(x)
        if class_weight is not None:
            x = tensorflow_data.weighted_dataset(x, class_weight, trainer.floatx)
        if trainer.in_tensorflow:
            observed = tensorflow_data.DatasetFeed(x, trainer.one_iterator)
            return observed, observed.dataset
        copy = tensorflow_data.copy_of(x)
        tensorflow_data.must_be_saved(x if copy is None else copy)
        source = TrackedSource(x, copy)
    elif hasattr(x, "shape") or _is_numbers(x):
        raise UnsupportedError(
            "this is neither a dense array nor an iterable of batches",
            key="data",
            expected="arrays of one length, or an iterable of batches",
            found=f"a {type(x).__name__}" + (" of numbers or text" if _is_numbers(x) else ""),
            remedy="convert it with numpy.asarray(), or pass a tf.data.Dataset of it",
        )
    else:
        source = make_source(x, shuffle, seed)
        if class_weight is not None:
            source = WeightedSource(source, class_weight, trainer.floatx)
    feed = Feed(source, trainer.placeholders, trainer.one_iterator)
    return feed, feed


def is_dataset(data: Any) -> bool:
    """Whether this is a ``tf.data.Dataset``."""
    return any(
        base.__name__ == "DatasetV2" and base.__module__.startswith("tensorflow.") for base in type(data).__mro__
    )


def _is_arrays(data: Any) -> bool:
    values = list(leaves(data))
    return bool(values) and all(hasattr(leaf, "shape") and hasattr(leaf, "__array__") for leaf in values)


def _is_numbers(data: Any) -> bool:
    """Whether these are lists without any array."""
    if not isinstance(data, (list, tuple)) or not data:
        return False
    return all(isinstance(leaf, (int, float, str, bytes)) for leaf in itertools.islice(leaves(data), 100))


def _array(leaf: Any, floatx: str) -> np.ndarray[Any, Any]:
    if hasattr(leaf, "detach"):  # a tensor of PyTorch, whose shorter floats NumPy does not know
        leaf = leaf.detach().cpu()
        leaf = leaf.float() if str(leaf.dtype) == "torch.bfloat16" else leaf
    array = np.asarray(leaf)
    return array.astype(floatx, copy=False) if array.dtype.kind == "f" else array
