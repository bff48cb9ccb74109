"""`milepost.jax.TreeManager`: a series of checkpoints of a tree."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Literal, TypeVar

from milepost.checkpoint.checkpoint import PathLike, exclusive, view_of
from milepost.checkpoint.tree_checkpoint import TreeCheckpoint
from milepost.engine.options import CheckpointOptions, takes_options
from milepost.engine.report import Outcome
from milepost.errors import MilepostError, UnsupportedError
from milepost.graph.description import html_table, kind_of, of_file
from milepost.graph.keys import escape
from milepost.manager.arguments import check_order
from milepost.manager.by_step import ByStep
from milepost.manager.checkpoint_manager import CheckpointManager, series_of
from milepost.manager.committed import OnCommitted
from milepost.manager.finite_policy import KeepLastFinite
from milepost.manager.managed_series import ManagedSeries
from milepost.manager.tolerance import Tolerate
from milepost.restoring.status import InitializationOnlyStatus, LoadStatus, unmatched
from milepost.retention import Policy
from milepost.saving.files import Source

TreeT = TypeVar("TreeT")


class TreeManager(ByStep):
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
        on_signal: Other signals to catch, as for `milepost.CheckpointManager`.
        grace_seconds: Seconds after the signal, after which the process ends, as for `milepost.CheckpointManager`.
        on_failure: What becomes of a save that fails or hangs, as for `milepost.CheckpointManager`.
        nonfinite: What becomes of a state with NaN or infinity, as for `milepost.CheckpointManager`.
        on_committed: A function that is told of each checkpoint that is saved, as for `milepost.CheckpointManager`.

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

    __module__ = "milepost.jax"

    @takes_options()
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
        on_signal: int | Collection[int] | None = None,
        grace_seconds: float | None = None,
        on_failure: Literal["raise"] | Tolerate = "raise",
        nonfinite: Literal["keep_last_finite"] | KeepLastFinite | None = None,
        on_committed: OnCommitted | None = None,
    ) -> None:
        self._checkpoint = TreeCheckpoint()
        self._manager = CheckpointManager(
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
            on_signal=on_signal,
            grace_seconds=grace_seconds,
            on_failure=on_failure,
            nonfinite=nonfinite,
            on_committed=on_committed,
        )

    @property
    def _series(self) -> ManagedSeries:
        return series_of(self._manager)

    def __repr__(self) -> str:
        manager = self.__dict__.get("_manager")
        return of_file(self, None) if manager is None else repr(manager).replace(kind_of(manager), kind_of(self), 1)

    def _repr_html_(self) -> str:
        """A table of the checkpoints, the newest first, which a notebook shows."""
        manager = self.__dict__.get("_manager")
        if manager is None:
            return html_table(repr(self), [], [], 0)
        table: str = manager._repr_html_()
        return table.replace(kind_of(manager), kind_of(self), 1)

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
    def skipped(self) -> dict[str, MilepostError]:
        """The checkpoints that were skipped as damaged or missing, by path, each with the error that says why.

        `restore_latest` and `latest_checkpoint` set this anew. It is empty if none was skipped.
        """
        return self._manager.skipped

    def adopt_checkpoints(self) -> list[str]:
        """Adds to the state file all checkpoints of this series in the directory, as `CheckpointManager.adopt_checkpoints` does."""
        return self._manager.adopt_checkpoints()

    @takes_options("save")
    def save(
        self,
        tree: Any,
        checkpoint_number: int | None = None,
        *,
        metrics: Mapping[str, Any] | None = None,
        metadata: Any = None,
        files: Mapping[str, Source] | None = None,
    ) -> str | None:
        """Saves a tree under the next number, and deletes old checkpoints.

        Args:
            tree: As for `milepost.jax.save`.
            checkpoint_number: The number to use instead of the next one, for example the training step.
            metrics: Numbers by name, or dicts of them, as for `milepost.CheckpointManager.save`.
            metadata: Anything that JSON can hold.
            files: Small files by name, as for `milepost.CheckpointManager.save`.

        Returns:
            The path of the checkpoint, or None if the save has failed and `milepost.Tolerate` lets the run go on.

        Raises:
            CheckpointExistsError: The directory has checkpoints of this name, and this manager has restored none of
                them.
            UntrackableError: The tree cannot be saved; see `milepost.jax.save`.
            UnsupportedError: Metrics are no numbers, JSON cannot hold the metadata, or a file cannot be saved.
            StorageError: The files cannot be written. Existing files are unchanged.
        """
        check_order(checkpoint_number, tree, "save(tree, step)")
        with exclusive(self._checkpoint, self._series.options):
            self._checkpoint.hold(tree)
            try:
                return self._manager.save(checkpoint_number, metrics=metrics, metadata=metadata, files=files)
            finally:
                self._checkpoint.release()

    @takes_options("save")
    def save_items(
        self,
        items: Mapping[str, Any],
        checkpoint_number: int | None = None,
        *,
        metrics: Mapping[str, Any] | None = None,
        metadata: Any = None,
        files: Mapping[str, Source] | None = None,
    ) -> str | None:
        """Saves several named items in one checkpoint: all of them become visible at once, or none.

        Args:
            items: The items by name. Each is a tree, as for `milepost.jax.save`, or an object with state, such as an iterator over
                data.
            checkpoint_number: As for `save`, like all others.
            metrics: Numbers by name.
            metadata: Anything that JSON can hold.
            files: Small files by name.

        Returns:
            As from `save`.

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
        return self.save(_named(items), checkpoint_number, metrics=metrics, metadata=metadata, files=files)

    @takes_options("restore")
    def restore(self, step: int | None, tree: TreeT) -> tuple[TreeT, LoadStatus]:
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
        check_order(step, tree, "restore(step, tree)")
        with exclusive(self._checkpoint, self._series.options):
            self._checkpoint.hold(tree, own=True)
            status: LoadStatus | None = None
            try:
                status = self._manager.restore(step)
                return self._checkpoint.held, status
            finally:
                self._checkpoint.release(status)

    @takes_options("restore")
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
        names = tuple(f"{escape(name)}/" for name in items)
        entries = [each for each in status.report() if each.key.startswith(names)]
        outcomes = {Outcome.MISSING, Outcome.LEFT_OUT}
        outcomes |= set() if partial else {Outcome.UNEXPECTED, Outcome.DEFERRED}
        offending = [each for each in entries if each.outcome in outcomes and not each.skipped_by_tensorflow]
        status.expect_partial().stop_waiting()
        if offending:
            raise unmatched(
                "items and checkpoint do not match",
                offending,
                status.report(),
                "compare the names; for saved values that are not to be restored, pass partial=True",
            )
        return tree, status

    @takes_options("restore")
    def restore_latest(self, tree: TreeT) -> tuple[TreeT, LoadStatus]:
        """Makes a new tree with the values of the newest good checkpoint.

        Args:
            tree: As for `milepost.jax.restore`.

        Returns:
            The new tree and a status, as from `milepost.jax.restore`. If there are no checkpoints, the given tree and a
            status of which assertions fail.

        Raises:
            CheckpointNotFoundError: The state file lists checkpoints, and all of them are missing.
            CorruptCheckpointError: The state file lists checkpoints, and none of them is good.
            MismatchError: A saved value has a different shape or element type than the tree.
        """
        with exclusive(self._checkpoint, self._series.options):
            self._checkpoint.hold(tree, own=True)
            status: LoadStatus | None = None
            try:
                if self._manager.restore_or_initialize() is None:
                    return tree, InitializationOnlyStatus(partial(view_of, self._checkpoint))
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
            remedy="pass a dict of named items; a tree without a name is saved by save()",
        )
    return dict(items)
