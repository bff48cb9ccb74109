"""The values that a restore takes if every process has saved its own.

====================  ====================================  ===============================================================
kind                  as many processes as saved            another number of processes
====================  ====================================  ===============================================================
random                each takes its own                    process r takes that of process r; if there is none, the process
                                                            keeps its own, and a warning says so
data, own             each takes its own                    refused, because data would be repeated or left out
====================  ====================================  ===============================================================

Each process sees only the part of the saved graph that it is to take, under the names of its live objects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from milepost.errors import MismatchError, UnrestoredWarning, warn
from milepost.graph.keys import ATTRIBUTES, OwnName, unescape
from milepost.graph.saved.object_graph import Node, ObjectGraph, SavedValue

_RANDOM = "random"


class OwnGraph(NamedTuple):
    """The object graph as one process takes it.

    Attributes:
        graph: The saved graph without the values of other processes. If another number of processes has saved, values of which each
            process saved its own keep their names; see `refuse_another_number`.
        kept: By node, the names of the values of which this process keeps its own, because fewer processes have saved theirs.
        owners: The nodes that had values of which every process has its own.
    """

    graph: ObjectGraph
    kept: Mapping[int, frozenset[str]] = MappingProxyType({})
    owners: Collection[int] = ()


def graph_of_process(graph: ObjectGraph, prefix: str, rank: int, size: int) -> OwnGraph:
    """The object graph as one process takes it.

    Args:
        graph: The saved graph.
        prefix: The checkpoint, for a warning.
        rank: The number of this process.
        size: How many processes restore.

    Returns:
        The graph, and what the process keeps.
    """
    nodes: list[Node] | None = None
    without: list[str] = []
    kept_own: dict[int, frozenset[str]] = {}
    own_values = graph.holding(lambda value: value.skipped_by_tensorflow and OwnName.parse(value.name) is not None)
    for number in own_values:
        node = graph.nodes[number]
        kept = []
        for value in node.values:
            own_name = OwnName.parse(value.name)
            if own_name is None or (own_name.size != size and own_name.kind != _RANDOM):
                kept.append(value)
            elif own_name.rank == rank:
                kept.append(value._replace(name=own_name.name))
            elif own_name.rank == 0 and rank >= own_name.size:
                without.append(value.key.partition(ATTRIBUTES)[0])
                kept_own[number] = kept_own.get(number, frozenset()) | {unescape(own_name.name)}
        if nodes is None:
            nodes = list(graph.nodes)
        nodes[number] = node._replace(values=tuple(kept))
    if without:
        warn(
            f"{prefix} was saved by fewer processes than restore it, so process {rank} keeps its own random state in: "
            f"{', '.join(dict.fromkeys(without))}; seed it, or restore with as many processes as have saved",
            UnrestoredWarning,
        )
    return OwnGraph(graph if nodes is None else ObjectGraph(tuple(nodes)), kept_own, set(own_values))


def refuse_another_number(saved: Sequence[SavedValue], rank: int, size: int) -> None:
    """Raises an error if every process saved its own state of an object, and another number restores it.

    Args:
        saved: The values of one node, of `graph_of_process`.
        rank: The number of this process.
        size: How many processes restore.

    Raises:
        MismatchError: Another number of processes has saved them.
    """
    for value in saved:
        own_name = OwnName.parse(value.name) if value.skipped_by_tensorflow else None
        if own_name is not None:
            path = value.key.partition(ATTRIBUTES)[0]
            raise MismatchError(
                "every process has saved its own state of this object, and a different number of processes would repeat or leave out "
                "data; nothing was changed",
                key=path,
                expected=f"{own_name.size} processes, as in the save",
                found=f"process {rank} of {size}",
                remedy=f"restore with {own_name.size} processes, or without this object in the Checkpoint, and begin the pass over the data anew",
            )
