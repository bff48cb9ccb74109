"""Milepost for JAX programs that hold their state in pytrees.

`save` and `restore` take and return trees, and `TreeManager` keeps a numbered series of them. The files are those of
`milepost.Checkpoint`, which also takes trees, and which suits programs that hold their state in attributes of objects.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial as _partial
from typing import Any
from typing import Final as _Final
from typing import TypeVar as _TypeVar

import jax as _jax
import numpy as _np

from milepost.bundle import index_path as _index_path
from milepost.bundle import open_bundle as _open_bundle
from milepost.checkpoint import Checkpoint as _Checkpoint
from milepost.checkpoint.checkpoint import exclusive as _exclusive
from milepost.checkpoint.checkpoint import root_of as _root_of
from milepost.checkpoint.checkpoint import set_root as _set_root
from milepost.checkpoint.checkpoint import view_of as _view_of
from milepost.engine.load import storage_of as _storage_of
from milepost.engine.options import CheckpointOptions
from milepost.engine.report import Outcome
from milepost.engine.status import CheckpointLoadStatus as _CheckpointLoadStatus
from milepost.engine.status import InitializationOnlyStatus, LoadStatus
from milepost.engine.status import unmatched as _unmatched
from milepost.engine.translation import Names as _Names
from milepost.engine.translation import Rename as _Rename
from milepost.errors import MilepostError as _MilepostError
from milepost.errors import UnsupportedError
from milepost.errors import UntrackableError as _UntrackableError
from milepost.graph.adapter import adapter_of as _adapter_of
from milepost.graph.containers import NoDependency as _NoDependency
from milepost.graph.description import kind_of as _kind_of
from milepost.graph.description import of_file as _of_file
from milepost.graph.frameworks import imported as _imported
from milepost.graph.keys import escape as _escape
from milepost.graph.traversal import walk as _walk
from milepost.graph.trees.leaves import with_leaves as _with_leaves
from milepost.graph.trees.places import Tree as _Tree
from milepost.graph.trees.places import kind_of_place as _kind_of_place
from milepost.graph.trees.structure import is_container as _is_container
from milepost.manager import CheckpointManager as _CheckpointManager
from milepost.manager.by_step import ByStep as _ByStep
from milepost.manager.checkpoint_manager import series_of as _series_of
from milepost.manager.managed_series import ManagedSeries as _ManagedSeries
from milepost.retention import Policy
from milepost.storage import Storage as _Storage
from milepost.storage.paths import plain_path as _plain_path

__all__ = ["TreeManager", "restore", "save"]

_COUNTER: _Final = "save_counter/.ATTRIBUTES/VARIABLE_VALUE"

PathLike = str | os.PathLike[str]
_TreeT = _TypeVar("_TreeT")


class _TreeCheckpoint(_Checkpoint):
    """A checkpoint whose root is a tree."""

    _tree_status: Any

    def __init__(self) -> None:
        super().__init__()
        _set_root(self, _Tree(None))

    def hold(self, tree: Any) -> None:
        if _kind_of_place(tree) is not None:
            if not isinstance(_root_of(self), _Tree):
                _set_root(self, _Tree(None))
            _root_of(self).value = tree
        elif _adapter_of(tree) is not None and not _is_container(type(tree)):
            _set_root(self, tree)  # such as a module of NNX
        else:
            raise _UntrackableError(
                "a checkpoint expects a tree with at least one value",
                expected="an array, a number, or a pytree of them",
                found=f"{tree!r:.80} of type {type(tree).__name__}",
                remedy="pass the tree that holds the arrays",
            )

    @property
    def held(self) -> Any:
        """The tree."""
        root = _root_of(self)
        return root.value if isinstance(root, _Tree) else root

    def release(self, status: LoadStatus | None = None) -> Any:
        """Returns the tree, and keeps only an outline of it, without arrays, for reports.

        Args:
            status: The status of a restore into the tree, which then refers to the outline.
        """
        tree, root = self.held, _root_of(self)
        before = _by_path(root) if isinstance(status, _CheckpointLoadStatus) else {}
        outlined = _outlined(tree)
        if isinstance(root, _Tree):
            root.value = outlined
        else:
            _set_root(self, outlined)
        if isinstance(status, _CheckpointLoadStatus):
            after = _by_path(_root_of(self))
            status.exchange({id(old): after[path] for path, old in before.items() if path in after})
        return tree

    def restore(
        self, save_path: PathLike | None, options: CheckpointOptions | None = None, **translation: Any
    ) -> LoadStatus:
        status = super().restore(save_path, options, **translation)
        self._tree_status = _NoDependency(status)
        return status

    @property
    def status(self) -> LoadStatus:
        """The status of the last restore."""
        status: LoadStatus = self._tree_status
        return status


def _by_path(root: Any) -> dict[str, Any]:
    live = _walk(root, slots=False)
    return dict(zip(live.paths, live.objects, strict=True))


def _outlined(tree: Any) -> Any:
    """A copy of a tree with shapes and dtypes in the place of arrays."""
    if not _imported("flax"):
        return _with_leaves(tree, _outline)
    from milepost.adapters.flax.copies import copied

    return copied(tree, _outline)


def _with_own_objects(tree: Any) -> Any:
    """A tree with copies of NNX's modules and variables, so that a restore does not change those of the caller."""
    if not _imported("flax"):
        return tree
    from milepost.adapters.flax.copies import copied

    return copied(tree)


def _outline(leaf: Any) -> Any:
    if isinstance(leaf, _jax.Array):
        return _jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    if type(leaf) is _np.ndarray:
        return _np.broadcast_to(_np.zeros((), leaf.dtype), leaf.shape)
    return leaf


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
    checkpoint = _TreeCheckpoint()
    checkpoint.hold(tree)
    written = checkpoint.write(path, options)
    checkpoint.sync()
    return written


def restore(
    path: PathLike,
    tree: _TreeT,
    options: CheckpointOptions | None = None,
    *,
    rename: _Rename = (),
    ignore: _Names = (),
    only: _Names | None = None,
    cast: bool | _Names = False,
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
    checkpoint = _TreeCheckpoint()
    checkpoint.hold(_with_own_objects(tree))
    counts = _has_counter(_plain_path(path), _storage_of(options))
    read = checkpoint.restore if counts else checkpoint.read
    status = read(path, options, rename=rename, ignore=ignore, only=only, cast=cast)
    return checkpoint.release(status), status


def _has_counter(path: str, storage: _Storage) -> bool:
    """Whether a checkpoint belongs to a series, and so has a counter beside the tree."""
    if not storage.is_file(_index_path(path)):
        return False
    try:
        with _open_bundle(storage, path) as reader:
            return _COUNTER in reader
    except _MilepostError:
        return False  # the restore raises it, on all processes


class TreeManager(_ByStep):
    """Keeps a series of checkpoints of a tree in a directory: numbers them, lists them in a state file, and deletes old ones.

    Files and rules are those of `milepost.CheckpointManager`.

    Args:
        directory: The directory of the checkpoints and their state file. It is made by the first save.
        max_to_keep: How many of the newest checkpoints to keep, or None to keep all.
        keep_checkpoint_every_n_hours: Hours. Of the checkpoints that would be deleted, one is preserved for each such
            period.
        checkpoint_name: The first part of the files' names.
        options: How to save and restore. With ``CheckpointOptions(enable_async=True)``, saves are asynchronous.
        keep: Which checkpoints to keep beside the newest ``max_to_keep``: policies of `milepost.retention`, such as
            ``Best(3, by="loss", mode="min") | EverySteps(10_000)``. With ``max_to_keep=None`` it decides alone. The newest and all
            pinned checkpoints are always kept.
        every_steps: Steps. `should_save` is true at each multiple.
        every_seconds: Seconds. `should_save` is true when so many have passed since the last save.
        on_sigterm: Whether to catch SIGTERM, as for `milepost.CheckpointManager`.

    Raises:
        ValueError: ``max_to_keep`` or an interval is not positive.
        UnsupportedError: An argument has a type or value that is not accepted.
        StateFileError: The state file of the directory is malformed.
        StorageError: The directory cannot be read.

    Example:
        >>> import jax.numpy as jnp, tempfile
        >>> manager = TreeManager(tempfile.mkdtemp(), max_to_keep=3)
        >>> state, status = manager.restore_latest({"params": jnp.zeros(3), "step": 0})
        >>> while state["step"] < 10:
        ...     state = {"params": state["params"] + 1, "step": state["step"] + 1}
        ...     path = manager.save(state)
        >>> [each.rpartition("/")[2] for each in manager.checkpoints]
        ['ckpt-8', 'ckpt-9', 'ckpt-10']

        With the training step as the number, and the best checkpoint kept beside the newest:

        >>> from milepost.retention import Best
        >>> keep = Best(1, by="loss", mode="min")
        >>> with TreeManager(tempfile.mkdtemp(), max_to_keep=1, keep=keep, every_steps=100) as manager:
        ...     for step in range(1, 501):
        ...         if manager.should_save(step):
        ...             path = manager.save({"step": step}, step, metrics={"loss": abs(step - 250)})
        >>> manager.steps, manager.best_step(), manager.latest_step
        ([200, 500], 200, 500)
    """

    def __init__(
        self,
        directory: PathLike,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
        *,
        options: CheckpointOptions | None = None,
        keep: Policy | None = None,
        every_steps: int | None = None,
        every_seconds: float | None = None,
        on_sigterm: bool = False,
    ) -> None:
        self._checkpoint = _TreeCheckpoint()
        self._manager = _CheckpointManager(
            self._checkpoint,
            directory,
            max_to_keep,
            keep_checkpoint_every_n_hours,
            checkpoint_name,
            options=options,
            keep=keep,
            every_steps=every_steps,
            every_seconds=every_seconds,
            on_sigterm=on_sigterm,
        )

    @property
    def _series(self) -> _ManagedSeries:
        return _series_of(self._manager)

    def __repr__(self) -> str:
        manager = self.__dict__.get("_manager")
        return _of_file(self, None) if manager is None else repr(manager).replace(_kind_of(manager), _kind_of(self), 1)

    @property
    def directory(self) -> str:
        """The directory, as given."""
        return self._manager.directory

    @property
    def checkpoints(self) -> list[str]:
        """The paths of the checkpoints, oldest first."""
        return self._manager.checkpoints

    @property
    def latest_checkpoint(self) -> str | None:
        """The path of the newest good checkpoint, or None."""
        return self._manager.latest_checkpoint

    @property
    def skipped(self) -> dict[str, _MilepostError]:
        """The checkpoints that were skipped as damaged or missing, by path, each with the error that says why.

        `restore_latest` and `latest_checkpoint` set this anew. It is empty if none was skipped.
        """
        return self._manager.skipped

    def adopt_checkpoints(self) -> list[str]:
        """Adds to the state file all checkpoints of this series in the directory, as `CheckpointManager.adopt_checkpoints` does."""
        return self._manager.adopt_checkpoints()

    def save(
        self,
        tree: Any,
        checkpoint_number: int | None = None,
        *,
        metrics: Mapping[str, Any] | None = None,
        metadata: Any = None,
    ) -> str:
        """Saves a tree under the next number, and deletes old checkpoints.

        Args:
            tree: As for `milepost.jax.save`.
            checkpoint_number: The number to use instead of the next one, for example the training step.
            metrics: Numbers by name, or dicts of them, as for `milepost.CheckpointManager.save`.
            metadata: Anything that JSON can hold.

        Returns:
            The path of the checkpoint.

        Raises:
            CheckpointExistsError: The directory has checkpoints of this name, and this manager has restored none of
                them.
            UntrackableError: The tree cannot be saved; see `milepost.jax.save`.
            UnsupportedError: Metrics are no numbers, or JSON cannot hold the metadata.
            StorageError: The files cannot be written. Existing files are unchanged.
        """
        with _exclusive(self._checkpoint):
            self._checkpoint.hold(tree)
            try:
                path = self._manager.save(checkpoint_number, metrics=metrics, metadata=metadata)
                assert path is not None, "there is no interval"
                return path
            finally:
                self._checkpoint.release()

    def save_items(
        self,
        items: Mapping[str, Any],
        checkpoint_number: int | None = None,
        *,
        metrics: Mapping[str, Any] | None = None,
        metadata: Any = None,
    ) -> str:
        """Saves several named items in one checkpoint: all of them become visible at once, or none.

        Args:
            items: The items by name. Each is a tree, as for `milepost.jax.save`, or an object with state, such as an iterator over
                data.
            checkpoint_number: As for `save`, like all others.
            metrics: Numbers by name.
            metadata: Anything that JSON can hold.

        Returns:
            The path of the checkpoint.

        Raises:
            UnsupportedError: The items are no mapping of names. Other errors are those of `save`.

        Example:
            >>> import jax.numpy as jnp, tempfile
            >>> manager = TreeManager(tempfile.mkdtemp())
            >>> items = {"state": {"w": jnp.ones(3)}, "position": {"batch": 7}}
            >>> path = manager.save_items(items, 100, metadata={"layers": 2})
            >>> restored, status = manager.restore_items(100, {"position": {"batch": 0}})
            >>> restored, manager.metadata(100)
            ({'position': {'batch': 7}}, {'layers': 2})
        """
        return self.save(_named(items), checkpoint_number, metrics=metrics, metadata=metadata)

    def restore(self, step: int | None, tree: _TreeT) -> tuple[_TreeT, LoadStatus]:
        """Makes a new tree with the values of the checkpoint with a number.

        Args:
            step: The number of the checkpoint. With None, the newest good one is restored.
            tree: As for `milepost.jax.restore`.

        Returns:
            The new tree and a status, as from `milepost.jax.restore`.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint. With None: no checkpoint at all.
            CorruptCheckpointError: The checkpoint is damaged.
            MismatchError: A saved value has a different shape or element type than the tree.

        Example:
            >>> import jax.numpy as jnp, tempfile
            >>> manager = TreeManager(tempfile.mkdtemp())
            >>> paths = [manager.save({"w": jnp.full(2, step)}, step) for step in (10, 20)]
            >>> tree, status = manager.restore(10, {"w": jnp.zeros(2, int)})
            >>> tree["w"].tolist()
            [10, 10]
        """
        with _exclusive(self._checkpoint):
            self._checkpoint.hold(_with_own_objects(tree))
            status: LoadStatus | None = None
            try:
                status = self._manager.restore(step)
                return self._checkpoint.held, status
            finally:
                self._checkpoint.release(status)

    def restore_items(
        self, step: int | None, items: Mapping[str, Any], *, partial: bool = False
    ) -> tuple[dict[str, Any], LoadStatus]:
        """Restores some of the items that `save_items` has saved. The others are not read.

        Args:
            step: The number of the checkpoint. With None, the newest good one is restored.
            items: The items by name, each as for `milepost.jax.restore`.
            partial: Whether an item may have saved values that its tree has no place for. If not, such values are an error.

        Returns:
            The new items by name, and a status. Its report has the values of the other items too, as not restored.

        Raises:
            CheckpointNotFoundError: There is no such checkpoint. With None: no checkpoint at all.
            CorruptCheckpointError: The checkpoint is damaged.
            MismatchError: A saved value has a different shape or element type than the item.
            UnmatchedError: An item, or a value of it, was not saved, or a saved value of it was not restored.

        Example:
            See `save_items`.
        """
        tree, status = self.restore(step, _named(items))
        names = tuple(f"{_escape(name)}/" for name in items)
        entries = [each for each in status.report() if each.key.startswith(names)]
        outcomes = (Outcome.MISSING,) if partial else (Outcome.MISSING, Outcome.UNEXPECTED, Outcome.DEFERRED)
        offending = [each for each in entries if each.outcome in outcomes and not each.skipped_by_tensorflow]
        status.expect_partial().stop_waiting()
        if offending:
            raise _unmatched(
                "items and checkpoint do not match",
                offending,
                status.report(),
                "compare the names; for saved values that are not to be restored, pass partial=True",
            )
        return tree, status

    def restore_latest(self, tree: _TreeT) -> tuple[_TreeT, LoadStatus]:
        """Makes a new tree with the values of the newest good checkpoint.

        Args:
            tree: As for `milepost.jax.restore`.

        Returns:
            The new tree and a status, as from `milepost.jax.restore`. If there are no checkpoints, the given tree and a
            `milepost.InitializationOnlyStatus`.

        Raises:
            CheckpointNotFoundError: The state file lists checkpoints, and all of them are missing.
            CorruptCheckpointError: The state file lists checkpoints, and none of them is good.
            MismatchError: A saved value has a different shape or element type than the tree.
        """
        with _exclusive(self._checkpoint):
            self._checkpoint.hold(_with_own_objects(tree))
            status: LoadStatus | None = None
            try:
                if self._manager.restore_or_initialize() is None:
                    return tree, InitializationOnlyStatus(_partial(_view_of, self._checkpoint))
                status = self._checkpoint.status
                return self._checkpoint.held, status
            finally:
                self._checkpoint.release(status)

    def sync(self) -> None:
        """Waits for the asynchronous save in progress, if any, and raises its error."""
        self._manager.sync()


def _named(items: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(items, Mapping) or not items or not all(isinstance(name, str) for name in items):
        raise UnsupportedError(
            "items are a dict of names and trees",
            expected="a dict with at least one item, such as {'state': state, 'data': iterator}",
            found=f"{items!r:.80} of type {type(items).__name__}",
        )
    return dict(items)
