"""Places for the nodes of a picture, in rows: every edge but those of cycles points downwards.

The method of Sugiyama, Tagawa and Toda (1981), in its simplest form: rows by the longest way from the root, order inside
a row by the middle of the neighbours in the row before, and places that pull nodes towards their neighbours. Written
here rather than taken from a library because `milepost demo` draws with nothing but milepost's own dependencies.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple

_SWEEPS: Final = 12
_LAST_SWEEPS: Final = 3
"""Sweeps that keep the order."""


def rows_of(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The row of each node: one below the lowest of those that point to it. Edges that close a cycle do not count.

    Args:
        count: The number of nodes; node 0 is the root.
        edges: Pairs of nodes.
    """
    children: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        if source != target:
            children[source].append(target)
    order: list[int] = []
    state = [0] * count  # 0: not seen, 1: being visited, 2: done
    forward: list[tuple[int, int]] = []
    for start in range(count):
        stack = [(start, iter(children[start]))] if not state[start] else []
        state[start] = state[start] or 1
        while stack:
            node, remaining = stack[-1]
            child = next(remaining, None)
            if child is None:
                state[node] = 2
                order.append(node)
                stack.pop()
            elif state[child] != 1:
                forward.append((node, child))
                if not state[child]:
                    state[child] = 1
                    stack.append((child, iter(children[child])))
    below: list[list[int]] = [[] for _ in range(count)]
    for source, target in forward:
        below[source].append(target)
    rows = [0] * count
    for node in reversed(order):
        for child in below[node]:
            rows[child] = max(rows[child], rows[node] + 1)
    return rows


class Placement(NamedTuple):
    """Where everything goes.

    Attributes:
        nodes: For each node where its middle is, from 0 on, and its row.
        routes: For each edge the same of the points between its ends, where it passes through rows.
    """

    nodes: list[tuple[float, int]]
    routes: list[list[tuple[float, int]]]


def place(widths: Sequence[float], edges: Sequence[tuple[int, int]], gap: float) -> Placement:
    """Finds a place for each node, and a way for each edge that keeps clear of the nodes in the rows it passes.

    Args:
        widths: How wide each node is.
        edges: Pairs of nodes.
        gap: Space between neighbours in a row.
    """
    count = len(widths)
    rows = rows_of(count, edges)
    room = list(widths)
    segments: list[tuple[int, int]] = []
    bends: list[list[int]] = []
    for source, target in edges:
        way = list(range(len(rows), len(rows) + max(0, rows[target] - rows[source] - 1)))
        rows += range(rows[source] + 1, rows[target])
        room += [0.0] * len(way)
        bends.append(way)
        points = [source, *way, target]
        segments += itertools.pairwise(points)
    members: list[list[int]] = [[] for _ in range(max(rows, default=0) + 1)]
    for node, row in enumerate(rows):
        members[row].append(node)
    neighbours: list[list[int]] = [[] for _ in rows]
    for source, target in segments:
        if rows[source] != rows[target]:
            neighbours[source].append(target)
            neighbours[target].append(source)
    # Two of the arrangements that the sweeps pass: the first is wider, the second has the edges of a tree without crossings.
    spacious = _arranged(members, neighbours, rows, room, gap, _SWEEPS)
    tidy = _arranged(members, neighbours, rows, room, gap, _SWEEPS + 1, _LAST_SWEEPS)
    middles = min((spacious, tidy), key=lambda arrangement: _crossings(segments, rows, arrangement))
    left = min((middles[node] - widths[node] / 2 for node in range(count)), default=0.0)
    positions = [(middle - left, row) for middle, row in zip(middles, rows, strict=True)]
    return Placement(positions[:count], [[positions[bend] for bend in way] for way in bends])


def _arranged(
    members: Sequence[Sequence[int]],
    neighbours: Sequence[Sequence[int]],
    rows: Sequence[int],
    room: Sequence[float],
    gap: float,
    sweeps: int,
    last: int = 0,
) -> list[float]:
    """Where the middle of each node is after some sweeps, of which every second goes downwards, and some more that keep the order."""
    middles = [0.0] * len(rows)
    ordered = [list(nodes) for nodes in members]
    for nodes in ordered:
        _spread(nodes, [float(position) for position in range(len(nodes))], middles, room, gap)
    for sweep in range(sweeps + last):
        downwards = sweep % 2 == 0
        for nodes in ordered if downwards else reversed(ordered):
            if sweep == sweeps - 1 and last:
                nodes.sort()
            wanted = {}
            for node in nodes:
                near = [middles[n] for n in neighbours[node] if (rows[n] < rows[node]) == downwards]
                wanted[node] = sum(near) / len(near) if near else middles[node]
            if sweep < sweeps:
                # Sorting is stable, so nodes that want the same place keep their order.
                nodes.sort(key=wanted.__getitem__)
            _spread(nodes, [wanted[node] for node in nodes], middles, room, gap)
    return middles


def _crossings(segments: Sequence[tuple[int, int]], rows: Sequence[int], middles: Sequence[float]) -> int:
    """How many pairs of edges cross."""
    by_row: dict[int, list[tuple[float, float]]] = {}
    for source, target in segments:
        if rows[source] < rows[target]:
            by_row.setdefault(rows[source], []).append((middles[source], middles[target]))
    count = 0
    for ends in by_row.values():
        seen: list[float] = []
        for _, end in sorted(ends):
            count += len(seen) - bisect.bisect_right(seen, end)
            bisect.insort(seen, end)
    return count


def _spread(
    row: Sequence[int], wanted: Sequence[float], middles: list[float], widths: Sequence[float], gap: float
) -> None:
    """Puts a row's nodes as near to where they are wanted as their widths allow, in this order.

    Nodes that would touch form a block, which goes where its members on average want to be.
    """
    blocks: list[tuple[float, float, list[int]]] = []  # left edge, width, nodes
    for node, middle in zip(row, wanted, strict=True):
        left, width, nodes = middle - widths[node] / 2, widths[node], [node]
        while blocks and blocks[-1][0] + blocks[-1][1] + gap > left:
            before_left, before_width, before = blocks.pop()
            share = len(before) / (len(before) + len(nodes))
            left = before_left * share + (left - before_width - gap) * (1 - share)
            width, nodes = before_width + gap + width, [*before, *nodes]
        blocks.append((left, width, nodes))
    for left, _, nodes in blocks:
        for node in nodes:
            middles[node] = left + widths[node] / 2
            left += widths[node] + gap
