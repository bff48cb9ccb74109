"""The trees that a restore of milepost takes, made from what tests of Orbax say of a restore."""

from __future__ import annotations

from typing import Any


def target_of(saved: Any, item: Any = None, restore_args: Any = None) -> Any:
    """A tree for `milepost.jax.restore`.

    Args:
        saved: What `milepost.load` makes of the saved tree.
        item: The tree of the test, or None. Leaves that are neither arrays nor descriptions of arrays have the saved shape.
        restore_args: Arguments of Orbax for each leaf, which say where it is to be, or None.
    """
    import jax

    shape = item if item is not None else restore_args if restore_args is not None else saved
    places, structure = jax.tree_util.tree_flatten_with_path(shape, is_leaf=_is_restore_args)
    where = (
        dict(jax.tree_util.tree_flatten_with_path(restore_args, is_leaf=_is_restore_args)[0]) if restore_args else {}
    )
    return jax.tree.unflatten(structure, [_leaf(_at(saved, path), leaf, where.get(path)) for path, leaf in places])


def _leaf(saved: Any, leaf: Any, restore_args: Any) -> Any:
    import jax
    import numpy as np

    if leaf is ...:
        return leaf
    described = leaf if isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct, np.ndarray)) else saved
    sharding = getattr(restore_args, "sharding", None)
    if sharding is None and getattr(restore_args, "mesh", None) is not None:
        sharding = jax.sharding.NamedSharding(restore_args.mesh, restore_args.mesh_axes)
    if sharding is None:
        return described
    return jax.ShapeDtypeStruct(described.shape, described.dtype, sharding=sharding)


def _at(saved: Any, path: Any) -> Any:
    """The saved value at a path, or None."""
    for key in path:
        name = str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))))
        saved = saved.get(name) if isinstance(saved, dict) else None
    return saved


def _is_restore_args(value: Any) -> bool:
    from orbax.checkpoint import RestoreArgs

    return isinstance(value, RestoreArgs) or value is ...
