"""What two checkpoints have that no array can hold, such as None and empty lists, and how they differ in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from milepost.bundle import BundleReader
from milepost.engine.load import read_object_graph
from milepost.errors import MilepostError
from milepost.graph.keys import escape
from milepost.graph.object_graph import ObjectGraph

_EMPTY: Final = {"list": "[]", "dict": "{}", "tuple": "()"}
"""How containers without members are shown, by the names of their types in the object graph."""


class NotArrays(NamedTuple):
    """How two checkpoints differ in what no array can hold.

    Attributes:
        removed: What only the first has, by name.
        added: What only the second has.
        changed: What is something else in the second: what it is in each.
        same: How many are the same in both.
    """

    removed: Mapping[str, str]
    added: Mapping[str, str]
    changed: Mapping[str, tuple[str, str]]
    same: int = 0

    @classmethod
    def of(cls, first: Mapping[str, str], second: Mapping[str, str]) -> NotArrays:
        """Compares what two checkpoints have.

        Example:
            >>> NotArrays.of({"a": "None", "b": "[]", "c": "{}"}, {"b": "[]", "c": "[]"})
            NotArrays(removed={'a': 'None'}, added={}, changed={'c': ('{}', '[]')}, same=1)
        """
        both = first.keys() & second.keys()
        changed = {name: (old, second[name]) for name, old in first.items() if name in both and old != second[name]}
        removed = {name: what for name, what in first.items() if name not in both}
        added = {name: what for name, what in second.items() if name not in both}
        return cls(removed, added, changed, len(both) - len(changed))

    @property
    def differ(self) -> bool:
        """Whether there is any difference."""
        return bool(self.removed or self.added or self.changed)

    def to_dict(self) -> dict[str, Any]:
        """The difference for JSON."""
        return {"removed": [*self.removed], "added": [*self.added], "changed": [*self.changed]}


def not_arrays_of(reader: BundleReader, *, with_graph: bool) -> dict[str, str]:
    """What a checkpoint or a file of another library has that no array can hold, by key. None in a checkpoint is none of it, since it has a
    tensor there.

    Args:
        reader: The open checkpoint.
        with_graph: Whether to look at the object graph of a checkpoint, which takes time.
    """
    if found := reader.catalogue().not_arrays:
        return dict(found)
    if not with_graph:
        return {}
    try:
        graph = read_object_graph(reader)
    except MilepostError:  # what is damaged is said where it is read
        return {}
    return {} if graph is None else _empty_in(graph)


def _empty_in(graph: ObjectGraph) -> dict[str, str]:
    """The lists, dicts and tuples without members in an object graph, by the shortest path to each."""
    found = {}
    paths = {0: ""}
    pending = [0]
    for number in pending:
        node = graph.nodes[number]
        if node.python in _EMPTY and not node.children and number:
            found[paths[number]] = _EMPTY[node.python]
        for edge in node.children:
            if edge.node not in paths:
                paths[edge.node] = f"{paths[number]}/{escape(edge.name)}" if number else escape(edge.name)
                pending.append(edge.node)
    return found
