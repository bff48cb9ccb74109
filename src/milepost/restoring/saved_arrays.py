"""The saved arrays that a restore can make, because the object graph names their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from milepost.graph.adapter import Adapter, adapter_of_array_type
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.plain.places import PLAIN_TYPES
from milepost.graph.saved.hints import decode
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.tensor import TensorSpec


class SavedArrays:
    """The saved arrays of types whose framework is imported.

    Args:
        graph: The object graph.
        specs: Returns element type and shape of each value of a node, by local name.

    Attributes:
        adapters: The adapters of the arrays, by the name of their type.
    """

    def __init__(self, graph: ObjectGraph, specs: Callable[[int], Mapping[str, TensorSpec]]) -> None:
        self._types = graph.types
        names = {name for name in set(self._types) - PLAIN_TYPES if "." in name}
        adapters = {name: adapter_of_array_type(name) for name in names}
        self._graph = graph
        self._specs = specs
        self.adapters: dict[str, Adapter] = {name: adapter for name, adapter in adapters.items() if adapter is not None}
        self._holders: dict[bool, set[int]] = {}

    def __contains__(self, node: int) -> bool:
        return self._types[node] in self.adapters

    def below(self, node: int, *, functional: bool = False) -> bool:
        """Whether a node is such an array, or a node below it is.

        Args:
            node: The node.
            functional: Whether to look only for arrays that never change.
        """
        if not self.adapters:
            return False
        if functional not in self._holders:
            self._holders[functional] = self._with_holders(functional)
        return node in self._holders[functional]

    def new(self, node: int) -> Any:
        """Makes an array that can take the saved value. None if there is no such array."""
        specs, hints = self._specs(node), decode(self._graph.nodes[node].hints)
        if specs.keys() - hints.keys() != {VARIABLE_VALUE}:
            return None
        try:
            return self.adapters[self._types[node]].new_array(specs[VARIABLE_VALUE], hints)
        except (MemoryError, ValueError):  # only a damaged file has such a shape
            return None

    def _with_holders(self, functional: bool) -> set[int]:
        parents: dict[int, list[int]] = {}
        for number, node in self._graph.inner:
            for edge in node.children:
                parents.setdefault(edge.node, []).append(number)
        wanted = {name for name, adapter in self.adapters.items() if adapter.functional or not functional}
        reached = [number for number, name in enumerate(self._types) if name in wanted]
        numbers = set(reached)
        for number in reached:
            new = [parent for parent in parents.get(number, ()) if parent not in numbers]
            numbers.update(new)
            reached += new
        return numbers
