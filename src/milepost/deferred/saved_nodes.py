"""The nodes of a saved object graph, with the keys and specs of their values in the files."""

from __future__ import annotations

from collections.abc import Iterator

from milepost.bundle import BundleReader
from milepost.graph.keys import ATTRIBUTES, unescape
from milepost.graph.saved.hints import decode
from milepost.graph.saved.object_graph import ObjectGraph, SavedValue
from milepost.tensor import DType, TensorSpec


class SavedNodes:
    """The nodes of a checkpoint.

    Args:
        reader: The open checkpoint.
        graph: Its object graph.

    Attributes:
        slots_of_variable: By the node of a variable, its slot variables: the node of the optimizer, the name of the slot, and the node.
        slot_nodes: The nodes of all slot variables.
    """

    def __init__(self, reader: BundleReader, graph: ObjectGraph) -> None:
        self._reader = reader
        self._nodes = graph.nodes
        self._stored_keys: dict[str, list[str]] | None = None
        self.slots_of_variable: dict[int, list[tuple[int, str, int]]] = {}
        self.slot_nodes: set[int] = set()
        for owner, node in graph.inner:
            for variable, name, slot in node.slots:
                self.slots_of_variable.setdefault(variable, []).append((owner, name, slot))
                self.slot_nodes.add(slot)

    def stored_keys(self, value: SavedValue) -> list[str]:
        """All keys in the files for the object of this value. The graph may list other keys, as TensorFlow does for iterators and tables."""
        if self._stored_keys is None:
            self._stored_keys = {}
            for key in self._reader.keys():  # noqa: SIM118 - a reader is not a mapping
                path, marker, _ = key.partition(ATTRIBUTES)
                if marker:
                    self._stored_keys.setdefault(path, []).append(key)
        return self._stored_keys.get(value.key.partition(ATTRIBUTES)[0], [])

    def keys(self, value: SavedValue) -> list[str]:
        """The keys in the files for a value: its own key, or those that begin with it (`stored_keys`)."""
        if value.key in self._reader:
            return [value.key]
        return [key for key in self.stored_keys(value) if key.startswith(value.key)] or [value.key]

    def values(self, node: int) -> list[tuple[SavedValue, str]]:
        """Every value of a node with each of its keys."""
        return [(value, key) for value in self._nodes[node].values for key in self.keys(value)]

    def specs(self, node: int) -> dict[str, TensorSpec]:
        """Element types and shapes of the values and hints of a node, by local name. Values that the files lack are left out."""
        saved = self._nodes[node]
        specs_by_name = {
            unescape(value.name): self._reader.spec(value.key) for value in saved.values if value.key in self._reader
        }
        return specs_by_name | {
            name: TensorSpec(DType.of(array), array.shape) for name, array in decode(saved.hints).items()
        }

    def name(self, node: int) -> str:
        """The key of a node's first value; else its number."""
        values = self._nodes[node].values
        return self.keys(values[0])[0] if values else f"node {node} of the object graph"

    def first_key(self, node: int) -> str:
        """The key of a node's first value, or of the first value below it."""
        return self.name(next((each for each in self.below(node) if self._nodes[each].values), node))

    def below(self, node: int) -> Iterator[int]:
        """A node and those below it, nearest first."""
        reached = {node: None}
        pending = [node]
        for number in pending:
            yield number
            below = dict.fromkeys(edge.node for edge in self._nodes[number].children if edge.node not in reached)
            reached |= below
            pending += below
