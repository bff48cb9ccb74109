"""Copies of trees that hold NNX's modules and variables, for programs without side effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from milepost.graph.trees.leaves import with_leaves


def copied(tree: Any, change: Callable[[Any], Any] | None = None) -> tuple[Any, bool]:
    """Copies a tree with its NNX modules and variables. Objects that the modules share are shared in the copy too.

    Args:
        tree: Any pytree, or an object of NNX.
        change: Replaces the arrays in modules and variables, and the other leaves; by default they stay the same.

    Returns:
        The new tree, and whether there are modules or variables in it.
    """
    objects: dict[int, Any] = {}

    def changed(leaf: Any) -> Any:
        if _is_object(leaf):
            objects[id(leaf)] = leaf
            return leaf
        return change(leaf) if change else leaf

    new = with_leaves(tree, changed)
    if not objects:
        return new, False
    definition, state = nnx.split(list(objects.values()))
    copies = nnx.merge(definition, jax.tree.map(change or _same, state))
    made = dict(zip(objects, copies, strict=True))
    return with_leaves(new, lambda leaf: made.get(id(leaf), leaf)), True


def _is_object(leaf: Any) -> bool:
    return isinstance(leaf, (nnx.Pytree, nnx.Variable))


def _same(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf.copy()  # it would be restored in place
    return jax.new_ref(leaf[...]) if type(leaf) is jax.Ref else leaf
