"""The positions of deferred nodes of an object-based checkpoint, counted so that its files are closed when no node needs them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from milepost.bundle import BundleReader
from milepost.deferred.identity import Bindings
from milepost.deferred.saved_nodes import SavedNodes
from milepost.graph.contract.operation import Operation
from milepost.graph.saved.object_graph import ObjectGraph
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


class RestoreFacts(Protocol):
    """The record of a restore, as positions and saves use it. `milepost.engine.restore_record` has the class, and says what the attributes are."""

    uid: int
    reader: BundleReader
    graph: ObjectGraph
    saved: SavedNodes
    bound: Bindings
    deferred: DeferredNodes
    partial_expected: bool
    is_watched: bool


class Restore(Protocol):
    """A restore, as its positions use it. `milepost.restoring.restore` has the class."""

    @property
    def record(self) -> RestoreFacts:
        """Its record."""
        ...

    def settle(self, operation: Operation, node: int, child: Any, *, superseded: bool = False) -> Any:
        """Restores an object that was made after the restore from a node. Returns the object or its successor."""
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
        self.uid = restoration.record.uid
        self.node = node
        self.siblings = siblings
        self.is_late = is_late
        self.variable = (
            variable  # kept alive, because the identity of the variable is the key of a deferred slot variable
        )
        self.superseded = False
        self.was_passed = False
        restoration.record.deferred.add(node)
        self.is_counted = True

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        try:
            is_counted = self.is_counted
        except AttributeError:  # Ctrl-C has come before
            return
        if is_counted and not is_finalizing():  # at the end of the interpreter the names of modules may be gone
            self.restoration.record.deferred.remove(self.node, superseded=self.superseded)

    def supersede(self) -> bool:
        if not self.superseded:
            self.superseded = True
            self.restoration.record.deferred.supersede()
        return self.restoration.record.is_watched

    @property
    def file(self) -> str:
        return self.restoration.record.reader.prefix

    @property
    def key(self) -> str:
        return self.restoration.record.saved.first_key(self.node)

    @property
    def is_wanted(self) -> bool:
        """Whether a save writes the value again."""
        return not self.superseded and not self.restoration.record.partial_expected

    def peek(self) -> Any:
        record = self.restoration.record
        values = record.graph.nodes[self.node].values
        return record.reader.read(values[0].key) if len(values) == 1 and not self.superseded else None

    def specs(self) -> Mapping[str, TensorSpec]:
        return self.restoration.record.saved.specs(self.node)

    def is_settled(self) -> bool:
        record = self.restoration.record
        nodes, seen = [self.node], {self.node}
        for number in nodes:
            if record.bound[number] is not None:
                continue  # nodes below it are deferred on that object
            saved = record.graph.nodes[number]
            if saved.values or saved.slots:
                return False
            below = {edge.node for edge in saved.children} - seen
            seen |= below
            nodes += below
        return True

    def settle(self, operation: Operation, name: Any, child: Any) -> Any:
        return self.restoration.settle(operation, self.node, child, superseded=self.superseded)

    def unsettle(self) -> None:
        del self.restoration.record.bound[self.node]
