"""Trees in which NNX's variables and modules are values, as in programs without side effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx


def copied(tree: Any, change: Callable[[Any], Any] | None = None) -> Any:
    """A tree with new modules and variables in the place of NNX's; what is shared among them is shared again.

    Args:
        tree: Any pytree, or an object of NNX.
        change: What becomes of the arrays in modules and variables; without it, they stay the same.

    Returns:
        The new tree; arrays and other leaves of it are those of the old one.
    """
    leaves, structure = jax.tree.flatten(tree, is_leaf=_is_object)
    positions = [number for number, leaf in enumerate(leaves) if _is_object(leaf)]
    if positions:
        definition, state = nnx.split([leaves[number] for number in positions])
        made = nnx.merge(definition, jax.tree.map(change or _same, state))
        for number, new in zip(positions, made, strict=True):
            leaves[number] = new
    return structure.unflatten(leaves)


def _is_object(leaf: Any) -> bool:
    return isinstance(leaf, (nnx.Pytree, nnx.Variable))


def _same(leaf: Any) -> Any:
    return jax.new_ref(leaf[...]) if type(leaf) is jax.Ref else leaf
