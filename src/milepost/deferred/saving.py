"""Writes deferred values again in a save.

A layer that was restored but not yet called has no variables, and a save at that moment would lose their values. So a save
writes the deferred parts of restored graphs again, as children of the live objects that lack them, under the names at which they
are deferred. The deferred values of a restore with `expect_partial` are not written.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from milepost.deferred.position import RestoredPosition, RestoreFacts
from milepost.deferred.table import Position, deferred_on
from milepost.graph.adapter import Array
from milepost.graph.keys import ATTRIBUTES, child_path, slot_path
from milepost.graph.live_graph import LiveGraph
from milepost.graph.saved.object_graph import Edge, SavedValue, SlotReference
from milepost.tensor import DType


class DeferredTensor(NamedTuple):
    """A deferred tensor to write."""

    key: str
    dtype: DType
    array: Array


@dataclass(slots=True)
class DeferredNode:
    """A saved node without a live object.

    Attributes:
        path: Its path in the new graph.
        values: Its values, as the new graph lists them.
        tensors: Its tensors.
        python: The name of its type, as the saved graph has it.
        hints: Its hints, as the saved graph has them.
        edges: Its edges in the new graph.
    """

    path: str
    values: tuple[SavedValue, ...]
    tensors: list[DeferredTensor]
    python: str
    hints: str
    edges: list[Edge] = field(default_factory=list)


@dataclass(slots=True)
class DeferredParts:
    """The deferred nodes and edges that a save adds to the live graph.

    Attributes:
        nodes: New nodes. Their ids follow those of the live graph.
        edges: More edges of live nodes.
        slots: More slot variables of live and new nodes.
    """

    nodes: list[DeferredNode] = field(default_factory=list)
    edges: dict[int, list[Edge]] = field(default_factory=dict)
    slots: dict[int, list[SlotReference]] = field(default_factory=dict)


def deferred_parts(live: LiveGraph) -> DeferredParts:
    """Collects what is deferred on the objects of a live graph.

    Raises:
        CorruptCheckpointError: A deferred value is damaged.
        StorageError: A deferred value cannot be read.
    """
    deferred = DeferredParts()
    collector = _Collector(live, deferred)
    collector.collect_nodes()
    collector.collect_slots()
    return deferred


class _Step(NamedTuple):
    """An edge to a deferred node. Edges are taken by their distance from the root, so that each path is the shortest."""

    depth: int
    number: int
    holder: int
    name: str
    record: RestoreFacts
    saved: int


class _Collector:
    def __init__(self, live: LiveGraph, deferred: DeferredParts) -> None:
        self._live = live
        self._deferred = deferred
        self._ids = {id(obj): node for node, obj in enumerate(live.objects)}
        self._new: dict[tuple[int, int], int] = {}
        self._records: dict[int, RestoreFacts] = {}

    def collect_nodes(self) -> None:
        """Adds the nodes that are deferred on live nodes, and all nodes below them."""
        steps: list[_Step] = []
        for holder, obj in enumerate(self._live.objects):
            depth = self._live.paths[holder].count("/") + (holder > 0)
            for name, positions in list(deferred_on(obj).items()):
                for position in positions:
                    if isinstance(position, RestoredPosition):
                        position.was_passed = True
                newest = _newest(positions)
                if newest is not None:
                    record = newest.restoration.record
                    self._records[record.uid] = record
                    # slot variables, whose names are not strings, follow when both their ends are known
                    if isinstance(name, str):
                        steps.append(_Step(depth, len(steps), holder, name, record, newest.node))
        heapq.heapify(steps)
        count = len(steps)
        while steps:
            depth, _, holder, name, record, saved = heapq.heappop(steps)
            target = self._id(record, saved)
            if target is None and record.bound[saved] is None:
                path = child_path(self._path(holder), name, is_root=holder == 0)
                target = self._add(record, saved, path)
                for edge in record.graph.nodes[saved].children:
                    count += 1
                    heapq.heappush(steps, _Step(depth + 1, count, target, edge.name, record, edge.node))
            if target is not None:
                self._edges(holder).append(Edge(name, target))

    def collect_slots(self) -> None:
        """Adds slot variables that do not exist yet, if their optimizer and variable are in the new graph."""
        taken = {(owner, slot.variable, slot.name) for owner, slots in self._live.slots.items() for slot in slots}
        for uid in sorted(self._records, reverse=True):
            record = self._records[uid]
            for saved_owner, saved in enumerate(record.graph.nodes):
                for variable, name, slot in saved.slots:
                    owner_id = self._id(record, saved_owner)
                    variable_id = self._id(record, variable)
                    if owner_id is None or variable_id is None or (owner_id, variable_id, name) in taken:
                        continue
                    taken.add((owner_id, variable_id, name))
                    path = slot_path(self._path(variable_id), self._path(owner_id), name)
                    reference = SlotReference(variable_id, name, self._add(record, slot, path))
                    self._deferred.slots.setdefault(owner_id, []).append(reference)

    def _add(self, record: RestoreFacts, saved: int, path: str) -> int:
        key = (record.uid, saved)
        if key not in self._new:
            self._new[key] = len(self._live.objects) + len(self._deferred.nodes)
            self._deferred.nodes.append(_deferred_node(record, saved, path))
        return self._new[key]

    def _id(self, record: RestoreFacts, saved: int) -> int | None:
        number = self._new.get((record.uid, saved))
        return number if number is not None else self._ids.get(id(record.bound[saved]))

    def _edges(self, node: int) -> list[Edge]:
        count = len(self._live.objects)
        return self._deferred.edges.setdefault(node, []) if node < count else self._deferred.nodes[node - count].edges

    def _path(self, node: int) -> str:
        count = len(self._live.objects)
        return self._live.paths[node] if node < count else self._deferred.nodes[node - count].path


def _newest(positions: Sequence[Position]) -> RestoredPosition | None:
    wanted = [position for position in positions if isinstance(position, RestoredPosition) and position.is_wanted]
    return max(wanted, key=lambda position: position.uid, default=None)


def _deferred_node(record: RestoreFacts, saved: int, path: str) -> DeferredNode:
    reader = record.reader
    listed = record.graph.nodes[saved].values

    local = {value.key: ATTRIBUTES + value.name for value in listed}

    def renamed(key: str) -> str:
        _, marker, name = key.partition(ATTRIBUTES)
        return path + (marker + name if marker else local[key])  # files of other libraries have other keys

    keys = [value.key for value in listed]
    if any(key not in reader for key in keys):
        keys = record.saved.stored_keys(listed[0])
    return DeferredNode(
        path,
        tuple(value._replace(key=renamed(value.key)) for value in listed),
        [DeferredTensor(renamed(key), reader.spec(key).dtype, reader.read(key)) for key in keys],
        record.graph.nodes[saved].python,
        record.graph.nodes[saved].hints,
    )
