"""One restore from a file of another library, which may hold objects that are not read, and lack what its library makes up for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from milepost.bundle import BundleReader
from milepost.engine.options import CheckpointOptions
from milepost.engine.report import Entry, Outcome
from milepost.engine.restore import Restoration
from milepost.foreign import HeldObject
from milepost.graph.object_graph import ObjectGraph

OWN: Final = frozenset({"save_counter"})
"""Names below the root: what milepost's checkpoints hold beside what they are given."""


class ForeignRestoration(Restoration):
    """A restore from a file of another library.

    Args:
        reader: The open file.
        graph: Its object graph, made for the live objects.
        options: As for `Restoration`.
        objects: For nodes that stand for objects which milepost does not make, what these are.
    """

    def __init__(
        self, reader: BundleReader, graph: ObjectGraph, options: CheckpointOptions, objects: Mapping[int, HeldObject]
    ) -> None:
        super().__init__(reader, graph, options, never_saved=OWN)
        self._objects = objects

    def _account_of_saved(self, waiting: Collection[int]) -> list[Entry]:
        return [*super()._account_of_saved(waiting), *self._account_of_objects(waiting)]

    def _account_of_objects(self, waiting: Collection[int]) -> list[Entry]:
        entries = []
        for node, held in self._objects.items():
            outcome = Outcome.DEFERRED if node in waiting and not held.is_unread else Outcome.UNEXPECTED
            if self.bound(node) is not None:
                outcome = Outcome.MATCHED
            note = "an object, which milepost does not make" + (
                "" if held.is_unread else "; what it holds is read by name"
            )
            entries.append(Entry(outcome, held.key, held.kind, note=note))
        return entries
