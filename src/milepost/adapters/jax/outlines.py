"""Copies of trees: without their arrays, or with objects of their own."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

import jax
import numpy as np

from milepost.graph.frameworks import usable
from milepost.graph.trees.leaves import with_leaves

_REMEMBERED: Final = 1024
"""For how many pairs of a shape and an element type the abstract array is remembered."""


def outlined(tree: Any) -> tuple[Any, Mapping[int, Any]]:
    """A copy of a tree with shapes and element types in the place of arrays. Nodes whose class takes arrays only keep their arrays.

    Returns:
        The copy; and the copies of modules and variables of NNX that the tree holds, by the identity of the object that each
        is a copy of.

    Example:
        >>> import jax.numpy as jnp
        >>> outlined({"w": jnp.ones((2, 3)), "step": 7})
        ({'w': ShapeDtypeStruct(shape=(2, 3), dtype=float32), 'step': 7}, {})
    """
    if not usable("flax.nnx"):
        return with_leaves(tree, _outline, keep_refused=True), {}
    from milepost.adapters.flax.copies import copied

    return copied(tree, _outline, keep_refused=True)


def with_own_objects(tree: Any) -> Any:
    """A tree with copies of NNX's modules and variables, so that a restore does not change those of the caller."""
    if not usable("flax.nnx"):
        return tree
    from milepost.adapters.flax.copies import copied

    return copied(tree)[0]


def _outline(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return _abstract(leaf.shape, leaf.dtype)
    if type(leaf) is np.ndarray:
        return _without_memory(leaf.shape, leaf.dtype)
    return leaf


@functools.lru_cache(_REMEMBERED)
def _abstract(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


@functools.lru_cache(_REMEMBERED)
def _without_memory(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """An array that takes the memory of one element."""
    return np.broadcast_to(np.zeros((), dtype), shape)
