"""Copies of trees that hold NNX's modules and variables, for programs without side effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from milepost.adapters.flax.variables import VARIABLES
from milepost.graph.trees.leaves import with_leaves


def copied(
    tree: Any, change: Callable[[Any], Any] | None = None, *, keep_refused: bool = False
) -> tuple[Any, Mapping[int, Any]]:
    """Copies a tree with its NNX modules and variables. Objects that the modules share are shared in the copy too.

    Args:
        tree: Any pytree, or an object of NNX.
        change: Replaces the arrays in modules and variables, and the other leaves; by default they stay the same.
        keep_refused: As in `with_leaves`.

    Returns:
        The new tree; and the copies of the modules and variables that the tree holds, by the identity of the object that each
        is a copy of.
    """
    objects: dict[int, Any] = {}

    def changed(leaf: Any) -> Any:
        if issubclass(
            type(leaf), (nnx.Pytree, *VARIABLES)
        ):  # isinstance() is slow here, as NNX defines it for variables
            objects[id(leaf)] = leaf
            return leaf
        return change(leaf) if change else leaf

    new = with_leaves(tree, changed, keep_refused=keep_refused)
    if not objects:
        return new, {}
    copies = _copies(list(objects.values()), change or _same)
    made = dict(zip(objects, copies, strict=True))
    return with_leaves(new, lambda leaf: made.get(id(leaf), leaf)), made


def _copies(objects: Sequence[Any], change: Callable[[Any], Any]) -> Sequence[Any]:
    if all(_holds_only_values(each) for each in objects):
        # What follows does the same, and takes several times as long to find what objects share.
        held = jax.tree.map(change, [each.get_raw_value() for each in objects])
        return [each.var_type.from_metadata(new, each.get_metadata()) for each, new in zip(objects, held, strict=True)]
    definition, held = nnx.flatten(objects, with_paths=False)
    copies: Sequence[Any] = nnx.unflatten(definition, jax.tree.map(change, held))
    return copies


def _holds_only_values(obj: Any) -> bool:
    """Whether this is a variable that holds nothing that another variable could hold too and change."""
    return isinstance(obj, VARIABLES) and not obj.ref


def _same(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf.copy()  # it would be restored in place
    return jax.new_ref(leaf[...]) if type(leaf) is jax.Ref else leaf
