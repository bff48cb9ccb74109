"""The positions of deferred nodes of an object-based checkpoint, counted so that its files are closed when no node needs them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from milepost.bundle import BundleReader
from milepost.graph.contract.operation import Operation
from milepost.graph.object_graph import ObjectGraph, SavedValue
from milepost.tensor import TensorSpec


class DeferredNodes:
    """The deferred nodes of a restore.

    Args:
        reader: The checkpoint. Its files are closed when no node needs them any more.
    """

    def __init__(self, reader: BundleReader) -> None:
        self._reader = reader
        self._counts: dict[int, int] = {}
        self._superseded = 0
        self._needing = 0

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._counts))

    @property
    def any_superseded(self) -> bool:
        """Whether a newer restore supersedes some of them."""
        return self._superseded > 0

    def add(self, node: int) -> None:
        """Counts a new position. One node may be deferred in several places."""
        self._needing += 1
        self._counts[node] = self._counts.get(node, 0) + 1

    def remove(self, node: int, *, superseded: bool) -> None:
        """Counts a position that was removed."""
        count = self._counts.pop(node) - 1
        if count:
            self._counts[node] = count
        if superseded:
            self._superseded -= 1
            return
        self._needing -= 1
        if not self._needing:
            self.release_if_unneeded()

    def supersede(self) -> None:
        """Counts a position that was superseded."""
        self._superseded += 1
        self._needing -= 1
        self.release_if_unneeded()

    def release_if_unneeded(self) -> None:
        """Closes the files if no node needs them."""
        if not self._needing:
            self._reader.release(for_good=True)


class Restore(Protocol):
    """A restore, as its positions use it. `milepost.restoring.restore` has the class."""

    uid: int
    reader: BundleReader
    graph: ObjectGraph
    deferred: DeferredNodes
    partial_expected: bool
    is_watched: bool

    def bound(self, node: int) -> Any:
        """The live object that matches a node, or None."""
        ...

    def first_key(self, node: int) -> str:
        """The key of a node's first value, or of the first value below it."""
        ...

    def stored_keys(self, value: SavedValue) -> list[str]:
        """All keys in the files for the object of this value."""
        ...

    def specs(self, node: int) -> Mapping[str, TensorSpec]:
        """Element types and shapes of a node's values, by local name."""
        ...

    def is_settled(self, node: int) -> bool:
        """Whether live objects have taken all values of a node and of the nodes below it."""
        ...

    def settle(self, operation: Operation, node: int, child: Any, *, superseded: bool = False) -> Any:
        """Restores an object that was made after the restore from a node. Returns the object or its successor."""
        ...

    def unsettle(self, node: int) -> None:
        """Forgets the object that a node was restored into."""
        ...


class RestoredPosition:
    """A saved node whose object does not exist yet; see `milepost.deferred.table`."""

    __slots__ = (
        "is_counted",
        "is_late",
        "node",
        "restoration",
        "siblings",
        "superseded",
        "uid",
        "variable",
        "was_passed",
    )

    def __init__(self, restoration: Restore, node: int, variable: Any, siblings: int, *, is_late: bool) -> None:
        self.restoration = restoration
        self.uid = restoration.uid
        self.node = node
        self.siblings = siblings
        self.is_late = is_late
        self.variable = (
            variable  # kept alive, because the identity of the variable is the key of a deferred slot variable
        )
        self.superseded = False
        self.was_passed = False
        restoration.deferred.add(node)
        self.is_counted = True

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        try:
            is_counted = self.is_counted
        except AttributeError:  # Ctrl-C has come before
            return
        if is_counted and not is_finalizing():  # at the end of the interpreter the names of modules may be gone
            self.restoration.deferred.remove(self.node, superseded=self.superseded)

    def supersede(self) -> bool:
        if not self.superseded:
            self.superseded = True
            self.restoration.deferred.supersede()
        return self.restoration.is_watched

    @property
    def file(self) -> str:
        return self.restoration.reader.prefix

    @property
    def key(self) -> str:
        return self.restoration.first_key(self.node)

    @property
    def is_wanted(self) -> bool:
        """Whether a save writes the value again."""
        return not self.superseded and not self.restoration.partial_expected

    def peek(self) -> Any:
        values = self.restoration.graph.nodes[self.node].values
        return self.restoration.reader.read(values[0].key) if len(values) == 1 and not self.superseded else None

    def specs(self) -> Mapping[str, TensorSpec]:
        return self.restoration.specs(self.node)

    def is_settled(self) -> bool:
        return self.restoration.is_settled(self.node)

    def settle(self, operation: Operation, name: Any, child: Any) -> Any:
        return self.restoration.settle(operation, self.node, child, superseded=self.superseded)

    def unsettle(self) -> None:
        self.restoration.unsettle(self.node)
