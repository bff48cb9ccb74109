"""From what a user would pass to ``fit()`` to data whose place can be saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from milepost.callbacks.batches import leaves, map_leaves
from milepost.callbacks.feed import Data, Feed
from milepost.callbacks.indexed import ArraySource
from milepost.callbacks.iterables import TrackedSource, make_source
from milepost.callbacks.sources import Source
from milepost.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Trainer:
    """How a trainer reads data.

    Attributes:
        floatx: The type to which arrays of floating-point numbers are converted.
        in_tensorflow: Whether it reads ``tf.data``.
        placeholders: Whether it reads a batch for every step, trained or not.
    """

    floatx: str
    in_tensorflow: bool
    placeholders: bool = False


def make_feed(
    data: tuple[Any, Any, Any], batch_size: int, shuffle: bool, seed: int | None, trainer: Trainer
) -> tuple[Data, Any]:
    """Makes data resumable.

    Args:
        data: ``x``, ``y`` and ``sample_weight``, of which the last two are None unless ``x`` is arrays.
        batch_size: For arrays.
        shuffle: For arrays, and for batches that are made by number.
        seed: Of the shuffling.
        trainer: Who will read it.

    Returns:
        What the callback asks, and what the trainer reads: the same `Feed`, or a ``tf.data.Dataset``.

    Raises:
        UnsupportedError: No place in the data can be found again.
    """
    x = data[0]
    if _is_arrays(data):
        packed = data[: 3 if data[2] is not None else 2 if data[1] is not None else 1]
        arrays = map_leaves(lambda leaf: _array(leaf, trainer.floatx), packed)
        source: Source = ArraySource(arrays, batch_size, shuffle, seed)
    elif data[1] is not None or data[2] is not None:
        raise UnsupportedError(
            "y and sample_weight go with arrays",
            key="data",
            expected="x that yields tuples (x, y) or (x, y, sample_weight)",
            found=f"a {type(x).__name__} with y or sample_weight",
        )
    elif is_dataset(x):
        from milepost.callbacks.tensorflow_data import DatasetFeed, copy_of, warn_of_shuffles

        warn_of_shuffles(x)
        if trainer.in_tensorflow:
            observed = DatasetFeed(x)
            return observed, observed.dataset
        source = TrackedSource(x, copy_of(x))
    else:
        source = make_source(x, shuffle, seed)
    feed = Feed(source, trainer.placeholders)
    return feed, feed


def is_dataset(data: Any) -> bool:
    """Whether this is a ``tf.data.Dataset``."""
    return any(
        base.__name__ == "DatasetV2" and base.__module__.startswith("tensorflow.") for base in type(data).__mro__
    )


def _is_arrays(data: Any) -> bool:
    found = list(leaves(data))
    return bool(found) and all(hasattr(leaf, "shape") and hasattr(leaf, "__array__") for leaf in found)


def _array(leaf: Any, floatx: str) -> np.ndarray[Any, Any]:
    array = np.asarray(leaf.detach().cpu() if hasattr(leaf, "detach") else leaf)
    return array.astype(floatx, copy=False) if array.dtype.kind == "f" else array
