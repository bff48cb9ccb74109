"""Exact comparison of what Keras objects hold and return."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from tests.zoo.recipe import keras


class DifferenceError(Exception):
    """A restored object is not what was saved; the text says in what."""


def array(value: Any) -> np.ndarray:
    """A tensor, a number or text as an array of its own, whatever framework it is of."""
    if isinstance(value, (str, bytes, int, float, np.ndarray)):
        return np.array(value)
    if type(value).__module__.startswith("tensorflow"):  # preprocessing layers give these on any backend
        return np.array(value)
    return np.array(keras.ops.convert_to_numpy(value))


def arrays(structure: Any) -> list[np.ndarray]:
    """All tensors of a nested structure, in order."""
    return [array(leaf) for leaf in keras.tree.flatten(structure) if leaf is not None]


def same(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Whether two arrays are equal bit for bit."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    return ours.tolist() == theirs.tolist() if ours.dtype.hasobject else ours.tobytes() == theirs.tobytes()


def require_same(what: str, found: Iterable[np.ndarray], expected: Iterable[np.ndarray]) -> None:
    """Raises a `DifferenceError` unless all arrays are equal bit for bit."""
    ours, theirs = list(found), list(expected)
    if len(ours) != len(theirs):
        raise DifferenceError(f"{what}: {len(ours)} tensors instead of {len(theirs)}")
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if not same(one, other):
            raise DifferenceError(
                f"{what}: tensor {number} of {len(ours)} differs, {one.dtype}{list(one.shape)} {_brief(one)} "
                f"instead of {other.dtype}{list(other.shape)} {_brief(other)}"
            )


def _brief(value: np.ndarray) -> str:
    return str(value.ravel()[:4].tolist())


def require_all_changed(what: str, names: Iterable[str], saved: Iterable[np.ndarray], other: Any) -> None:
    """Raises a `DifferenceError` if a saved value could be taken for restored although it was there before."""
    for name, one, two in zip(names, saved, other, strict=True):
        if one.size and same(one, two):
            raise DifferenceError(f"{what}: {name} is the same before restoring, so that nothing is proved")


def seed_frameworks(seed: int) -> None:
    """Starts anew the random numbers that some layers of Keras draw from no seed of their own."""
    random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def as_input(structure: Any) -> Any:
    """Text as a tensor of TensorFlow, which layers for text take on every backend; all else as it is."""

    def convert(leaf: Any) -> Any:
        if not leaf.dtype.hasobject:
            return leaf
        import tensorflow as tf

        return tf.constant(leaf)

    return keras.tree.map_structure(convert, structure)
