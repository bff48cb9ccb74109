"""Live objects as a graph, with the numbers that they would have in a checkpoint."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from milepost.errors import UnsupportedError, UntrackableError
from milepost.graph.adapter import Adapter, Value, values_of
from milepost.graph.omissions import Omitted
from milepost.graph.paths import Paths
from milepost.graph.saved.object_graph import Edge, SlotReference


@dataclass(slots=True)
class LiveGraph:
    """Live objects and their edges, with the numbers that they would have in a checkpoint.

    Attributes:
        objects: The objects, by node id. Number 0 is the root.
        adapters: The adapter of each.
        edges: The named edges of each.
        paths: The escaped path of each from the root, or the slot path of a slot variable.
        slots: The slot variables of each optimizer, by the node id of the optimizer.
        skipped_by_tensorflow: Ids of the objects that TensorFlow would not save, since it follows no edge to them.
        first_slot: The id of the first slot variable. All objects from there on are slot variables.
        omissions: The state that a checkpoint would leave out; empty if the walk did not look for omissions.
    """

    objects: list[Any] = field(default_factory=list)
    adapters: list[Adapter] = field(default_factory=list)
    edges: list[Sequence[Edge]] = field(default_factory=list)
    paths: Paths = field(default_factory=Paths)
    slots: dict[int, list[SlotReference]] = field(default_factory=dict)
    skipped_by_tensorflow: range = range(0)
    first_slot: int = 0
    omissions: list[Omitted] = field(default_factory=list)

    def values(self, without: Container[int] = ()) -> Iterator[tuple[int, Sequence[Value]]]:
        """Every node that has values itself, with its values.

        Args:
            without: Identities of objects to leave out.
        """
        for number, obj in enumerate(self.objects):
            if id(obj) in without:
                continue
            try:
                values = values_of(self.adapters[number], obj)
            except (UntrackableError, UnsupportedError) as error:
                raise error.with_context(key=self.paths[number]) from error.__cause__
            if values:
                yield number, values
