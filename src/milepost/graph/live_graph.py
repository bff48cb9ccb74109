"""Live objects as a graph, numbered as a checkpoint of them would be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from milepost.errors import MilepostError, UnsupportedError, UntrackableError
from milepost.graph.adapter import Adapter, Value
from milepost.graph.object_graph import Edge, SlotReference
from milepost.graph.omissions import Omitted
from milepost.graph.remedies import cannot_be_read


@dataclass(slots=True)
class LiveGraph:
    """Live objects and their edges, numbered as a checkpoint of them would be.

    Attributes:
        objects: The objects, by node id; number 0 is the root.
        adapters: The adapter of each.
        edges: The named edges of each.
        paths: The escaped path of each from the root; for a slot variable, its slot path.
        slots: For each optimizer's node, its slot variables.
        skipped_by_tensorflow: Ids of the objects that TensorFlow would not save, since it follows no edge that leads to them.
        first_slot: Id of the first slot variable; all from there on are slot variables.
        omissions: What a checkpoint of them would leave out, if the walk looked for that.
    """

    objects: list[Any] = field(default_factory=list)
    adapters: list[Adapter] = field(default_factory=list)
    edges: list[list[Edge]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    slots: dict[int, list[SlotReference]] = field(default_factory=dict)
    skipped_by_tensorflow: range = range(0)
    first_slot: int = 0
    omissions: list[Omitted] = field(default_factory=list)

    def values(self) -> Iterator[tuple[int, Sequence[Value]]]:
        """Every node that has values of its own, with them."""
        for number, obj in enumerate(self.objects):
            try:
                values = values_of(self.adapters[number], obj)
            except (UntrackableError, UnsupportedError) as error:
                raise error.with_context(key=self.paths[number]) from error.__cause__
            if values:
                yield number, values


def values_of(adapter: Adapter, obj: Any) -> Sequence[Value]:
    """The values of one object.

    Raises:
        UntrackableError: The object does not say what it holds.
    """
    try:
        return adapter.values(obj) if "values" in adapter.overrides else ()
    except MilepostError:
        raise
    except Exception as error:
        raise cannot_be_read(obj, error, adapter, "values") from error
