"""Milepost for JAX programs that hold their state in pytrees.

`save` and `restore` take and return trees, and `TreeManager` keeps a numbered series of them. The files are those of
`milepost.Checkpoint`, which also takes trees, and which suits programs that hold their state in attributes of objects.
"""

from __future__ import annotations

import os
from collections.abc import Sequence as _Sequence
from typing import Any
from typing import TypeVar as _TypeVar

import jax as _jax  # noqa: F401 - without JAX, this module cannot be imported

from milepost.checkpoint.tree_checkpoint import TreeCheckpoint as _TreeCheckpoint
from milepost.checkpoint.tree_checkpoint import is_of_series as _is_of_series
from milepost.engine.layouts.steps import Step as _Step
from milepost.engine.options import CheckpointOptions
from milepost.engine.options import storage_of as _storage_of
from milepost.engine.options import takes_options as _takes_options
from milepost.engine.translation import Names as _Names
from milepost.engine.translation import Rename as _Rename
from milepost.manager.tree_manager import TreeManager
from milepost.restoring.status import LoadStatus
from milepost.storage.paths import check_order as _check_order
from milepost.storage.paths import plain_path as _plain_path

__all__ = ["TreeManager", "restore", "save"]

PathLike = str | os.PathLike[str]
_TreeT = _TypeVar("_TreeT")


@_takes_options("save")
def save(path: PathLike, tree: Any, options: CheckpointOptions | None = None) -> str:
    """Saves a tree under exactly this path, durably and atomically.

    Args:
        path: The path of the files, without extension. An existing checkpoint is replaced atomically.
        tree: Any pytree, or a module, optimizer or state of NNX. Leaves can be `jax.Array` of any element type, keys of
            random number generators, arrays of NumPy, Python's numbers and text, and other trackable objects, such as
            iterators over data. Functions are left out.
        options: How to save. This function waits until an asynchronous save is durable.

    Returns:
        ``path`` as a string, for `restore`.

    Raises:
        UntrackableError: The tree is empty, or a leaf cannot be saved, such as a date, or an array that is being traced
            or was deleted.
        UnsupportedError: An element type cannot be stored, or other processes hold parts of an array.
        StorageError: The files cannot be written. Existing files are unchanged.

    Example:
        >>> import jax.numpy as jnp, milepost, tempfile
        >>> path = save(tempfile.mkdtemp() + "/params", {"dense": {"kernel": jnp.ones((2, 3)), "bias": jnp.zeros(3)}})
        >>> milepost.list_variables(path)[1:]
        [('dense/bias/.ATTRIBUTES/VARIABLE_VALUE', [3]), ('dense/kernel/.ATTRIBUTES/VARIABLE_VALUE', [2, 3])]
    """
    _check_order(path, tree, "milepost.jax.save(path, tree)")
    checkpoint = _TreeCheckpoint()
    checkpoint.hold(tree)
    written = checkpoint.write(path, options)
    checkpoint.sync()
    return written


@_takes_options("restore")
def restore(
    path: PathLike,
    tree: _TreeT,
    options: CheckpointOptions | None = None,
    *,
    rename: _Rename = (),
    ignore: _Names = (),
    only: _Names | None = None,
    cast: bool | _Names = False,
    skip_mismatch: bool = False,
    convert: _Sequence[_Step] = (),
) -> tuple[_TreeT, LoadStatus]:
    """Makes a new tree with saved values.

    Args:
        path: The path of a checkpoint of `save`, of a `TreeManager` or of a `milepost.Checkpoint`.
        tree: A tree of the same structure. Each new array gets the element type, sharding and devices of the leaf that
            it replaces. Leaves can be `jax.ShapeDtypeStruct`, as `jax.eval_shape` makes them, to save memory. The given
            tree does not change, nor do modules and variables of NNX in it. Values that were not saved are taken from
            it. Other trackable objects among its leaves are restored in place.
        options: How to restore.
        rename: As for `milepost.Checkpoint.restore`.
        ignore: As for `milepost.Checkpoint.restore`.
        only: As for `milepost.Checkpoint.restore`.
        cast: As for `milepost.Checkpoint.restore`.
        skip_mismatch: As for `milepost.Checkpoint.restore`.
        convert: As for `milepost.Checkpoint.restore`.

    Returns:
        The new tree, of the type of the given one, and a status with assertions and a full report.

    Raises:
        CheckpointNotFoundError: There is no such checkpoint.
        CorruptCheckpointError: The checkpoint is damaged.
        MismatchError: A saved value has a different shape or element type than the tree.

    Example:
        >>> import jax, jax.numpy as jnp, tempfile
        >>> path = save(tempfile.mkdtemp() + "/params", {"kernel": jnp.ones((2, 3)), "step": 7})
        >>> params, status = restore(path, {"kernel": jax.ShapeDtypeStruct((2, 3), "float32"), "step": 0})
        >>> status = status.assert_consumed()
        >>> float(params["kernel"].sum()), params["step"]
        (6.0, 7)
    """
    _check_order(path, tree, "milepost.jax.restore(path, tree)")
    checkpoint = _TreeCheckpoint()
    checkpoint.hold(tree, own=True)
    counts = _is_of_series(_plain_path(path), _storage_of(options))
    read = checkpoint.restore if counts else checkpoint.read
    status = read(
        path,
        options,
        rename=rename,
        ignore=ignore,
        only=only,
        cast=cast,
        skip_mismatch=skip_mismatch,
        convert=convert,
    )
    return checkpoint.release(status), status
