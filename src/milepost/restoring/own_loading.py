"""Objects that load their state by code of their own, as modules of PyTorch may: it renames, converts or fuses values of older versions.

Such an object loads its saved state when its leaves have the values of their names. What it has taken then counts as restored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from milepost.engine.restore_record import RestoreRecord
from milepost.graph.adapter import adapter_of_type
from milepost.graph.contract.matching import SavedState
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.saved.all_names import version_of
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.restoring.match import Match
from milepost.restoring.undo import Undo


def load_by_own_code(record: RestoreRecord, match: Match, undo: Undo, kept: Callable[[], Collection[int]]) -> None:
    """Makes the objects of a match load what was saved for them by code of their own, and notes in the match what they have taken.

    Args:
        record: The record of the restore, with what earlier parts of it have bound.
        match: The match, whose values have been delivered.
        undo: As for `SavedState`.
        kept: Returns the identities of the objects that are to keep their values, because the program has asked for that.
    """
    graph, reader = record.graph, record.reader
    bindings = match.bindings
    kinds = {kind: adapter_of_type(kind) for kind in set(map(type, bindings.values()))}
    adapters = {kind: each for kind, each in kinds.items() if each is not None and "loads_saved" in each.overrides}
    loaded: set[int] = set()
    restored: set[int] | None = None
    keeping: Collection[int] = ()
    for node, obj in list(bindings.items()) if adapters else ():
        adapter = adapters.get(type(obj))
        if adapter is None or node in loaded or not (node in match.adapted or adapter.loads_saved(obj)):
            continue
        if restored is None:
            restored = {
                id(each) for each in (*(take.obj for take in match.takes), *(late for _, late in record.bound.living()))
            }
            keeping = kept()
        if id(obj) in keeping:
            continue
        others = dict(_others(record, match, node)) if match.deferred or match.adapted else {}
        values = {name: reader.read(graph.nodes[each].values[0].key) for name, each in others.items()}
        noted = record.file.versions
        versions = _noted_versions(graph, node) if noted is None else noted.get(node)
        loaded_state = adapter.load_saved(obj, SavedState(values, versions, restored, keeping, undo.add))
        if loaded_state is None:
            continue
        loaded.update(record.saved.below(node))
        bindings.update((others[name], obj) for name in loaded_state.taken)
        match.filled += loaded_state.filled
        restored.update(map(id, loaded_state.filled))
    if loaded:
        match.deferred = [each for each in match.deferred if not _is_taken(record, match, each.node)]


def _noted_versions(graph: ObjectGraph, node: int) -> Mapping[str, Any] | None:
    """The versions of the classes of a saved module of PyTorch and of those in it, by their names; None if they were not saved."""
    if version_of(graph.nodes[node]) is None:
        return None
    versions: dict[str, Any] = {}
    for name, number in _named(graph, node):
        version = version_of(graph.nodes[number])
        if version is not None:
            versions[name] = {"version": version}
    return versions


def _named(graph: ObjectGraph, node: int) -> Iterator[tuple[str, int]]:
    """A node and those below it, each after its name, whose levels are separated by dots."""
    pending, seen = [("", node)], {node}
    for name, number in pending:
        yield name, number
        for edge in graph.nodes[number].children:
            if edge.node not in seen:
                seen.add(edge.node)
                pending.append((f"{name}.{edge.name}" if name else edge.name, edge.node))


def _others(record: RestoreRecord, match: Match, node: int) -> Iterator[tuple[str, int]]:
    """The nodes below a node that have one array each, which no live object takes, after their names."""
    graph, reader = record.graph, record.reader
    for name, number in _named(graph, node):
        values = graph.nodes[number].values
        if number in match.bindings or number in record.bound or len(values) != 1 or values[0].name != VARIABLE_VALUE:
            continue
        if values[0].key in reader and not reader.spec(values[0].key).dtype.is_bytes:
            yield name, number


def _is_taken(record: RestoreRecord, match: Match, node: int) -> bool:
    """Whether an object has taken all values of a node and of those below it."""
    return all(each in match.bindings for each in record.saved.below(node) if record.graph.nodes[each].values)
