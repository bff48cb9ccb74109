"""Gives the values of an object graph the keys that its edges say, after objects were renamed or left out."""

from __future__ import annotations

from collections import deque

from milepost.graph.keys import ATTRIBUTES, child_path, slot_path
from milepost.graph.saved.object_graph import ObjectGraph


def rekeyed(graph: ObjectGraph) -> tuple[ObjectGraph, dict[str, str]]:
    """An object graph without the objects to which no edge leads, and with keys by the paths of the others.

    Args:
        graph: The graph.

    Returns:
        The graph, and the new paths of its objects with values, by the paths that are in their keys.
    """
    nodes = graph.nodes
    paths = {0: ""}
    pending = deque([0])
    owners = []
    while pending:
        number = pending.popleft()
        if nodes[number].slots:
            owners.append(number)
        for edge in nodes[number].children:
            if edge.node not in paths:
                paths[edge.node] = child_path(paths[number], edge.name, is_root=not number)
                pending.append(edge.node)
    for owner in owners:
        for slot in nodes[owner].slots:
            if slot.variable not in paths:  # nothing leads to it, so it keeps its path
                key = nodes[slot.variable].values[0].key if nodes[slot.variable].values else str(slot.variable)
                paths[slot.variable] = key.partition(ATTRIBUTES)[0]
            paths.setdefault(slot.slot, slot_path(paths[slot.variable], paths[owner], slot.name))
    numbers = {number: position for position, number in enumerate(paths)}
    moved = {}
    new_nodes = []
    for number, path in paths.items():
        node = nodes[number]
        values = []
        for value in node.values:
            old, marker, local = value.key.partition(ATTRIBUTES)
            if marker:
                moved[old] = path
                value = value._replace(key=f"{path}{marker}{local}")
            values.append(value)
        children = tuple(edge._replace(node=numbers[edge.node]) for edge in node.children)
        slots = tuple(slot._replace(variable=numbers[slot.variable], slot=numbers[slot.slot]) for slot in node.slots)
        new_nodes.append(node._replace(children=children, values=tuple(values), slots=slots))
    return ObjectGraph(tuple(new_nodes)), moved
