"""A checkpoint of one tree, for programs that hold their state in trees and not in objects."""

from __future__ import annotations

from typing import Any, Final

from milepost.bundle import index_path, open_bundle
from milepost.checkpoint.checkpoint import Checkpoint, PathLike, root_of, set_root
from milepost.engine.options import CheckpointOptions
from milepost.engine.translation import SAVE_COUNTER
from milepost.errors import MilepostError, UntrackableError
from milepost.graph.adapter import adapter_of, adapter_of_type
from milepost.graph.containers import NoDependency
from milepost.graph.contract.operation import Operation
from milepost.graph.frameworks import require
from milepost.graph.keys import VARIABLE_VALUE, tensor_key
from milepost.graph.traversal import walk
from milepost.graph.trees.places import Tree, kind_of_place
from milepost.graph.trees.structure import is_container
from milepost.restoring.status import CheckpointLoadStatus, LoadStatus
from milepost.storage import Storage

_COUNTER: Final = tensor_key(SAVE_COUNTER, VARIABLE_VALUE)


class TreeCheckpoint(Checkpoint):
    """A checkpoint whose root is a tree. It holds the tree during one save or restore: `hold`, save or restore, `release`."""

    _tree_status: Any

    def __init__(self) -> None:
        super().__init__()
        set_root(self, Tree(None))

    def hold(self, tree: Any, *, own: bool = False) -> None:
        """Takes a tree.

        Args:
            tree: The tree.
            own: Whether to copy its modules and variables of NNX, so that a restore does not change those of the caller.

        Raises:
            UntrackableError: There is nothing in it to save.
            AdapterError: milepost cannot use the installed version of JAX, or of the framework of an object in the tree.
        """
        require("jax")
        if own:
            from milepost.adapters.jax.outlines import with_own_objects

            tree = with_own_objects(tree)
        if kind_of_place(tree) is not None:
            if not isinstance(root_of(self), Tree):
                set_root(self, Tree(None))
            root_of(self).value = tree
        elif adapter_of(tree) is not None and not is_container(type(tree)):
            set_root(self, tree)  # such as a module of NNX
        else:
            raise UntrackableError(
                "a checkpoint expects a tree with at least one value",
                expected="an array, a number, or a pytree of them",
                found=f"{tree!r:.80} of type {type(tree).__name__}",
                remedy="pass the tree that holds the arrays",
            )

    @property
    def held(self) -> Any:
        """The tree."""
        root = root_of(self)
        return root.value if isinstance(root, Tree) else root

    def release(self, status: LoadStatus | None = None) -> Any:
        """Returns the tree, and keeps only an outline of it, without arrays, for reports.

        Args:
            status: The status of a restore into the tree, which then refers to the outline.
        """
        from milepost.adapters.jax.outlines import outlined

        tree, root = self.held, root_of(self)
        outline, copies = outlined(tree)
        # The places of a tree are the same for its outline. Objects that the outline has copies of are not, nor is what is in them.
        referring = status if copies and isinstance(status, CheckpointLoadStatus) else None
        have_parts = referring is not None and any(_has_parts(each) for each in copies.values())
        before = _by_path(root) if have_parts else {}
        if isinstance(root, Tree):
            root.value = outline
        else:
            set_root(self, outline)
        if have_parts:
            after = _by_path(root_of(self))
            copies = {id(old): after[path] for path, old in before.items() if path in after}
        if referring is not None:
            referring.exchange(copies)
        return tree

    def restore(
        self, path: PathLike | None, options: CheckpointOptions | None = None, **translation: Any
    ) -> LoadStatus:
        status = super().restore(path, options, **translation)
        self._tree_status = NoDependency(status)
        return status

    @property
    def status(self) -> LoadStatus:
        """The status of the last restore."""
        status: LoadStatus = self._tree_status
        return status


def _has_parts(obj: Any) -> bool:
    adapter = adapter_of_type(type(obj))
    return adapter is not None and not adapter.leaf


def _by_path(root: Any) -> dict[str, Any]:
    live = walk(Operation(root), slots=False)
    return dict(zip(live.paths, live.objects, strict=True))


def is_of_series(path: str, storage: Storage) -> bool:
    """Whether a checkpoint belongs to a series, and so has a counter beside the tree."""
    if not storage.is_file(index_path(path)):
        return False
    try:
        with open_bundle(storage, path) as reader:
            return _COUNTER in reader
    except MilepostError:
        return False  # the restore raises it, on all processes
