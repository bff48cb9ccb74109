"""Where the nodes and edges of a picture are drawn, in pixels: from top to bottom, or from left to right if that would be too wide or has many nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from milepost.tools.drawing.bands import lines_of
from milepost.tools.drawing.layout import place

Point = tuple[float, float]

HEIGHT: Final = 22.0
"""The height of a node."""
MARGIN: Final = 24.0
_WIDEST: Final = 1100.0
"""Pictures that would be wider go from left to right, since pages are scrolled downwards."""
_FEW: Final = 24
"""A picture with more nodes has bands: children stand beside their parent, whatever other edges lead to them."""
_ROW: Final = 92.0
_GAP: Final = 22.0
_GAP_SIDEWAYS: Final = 9.0
_CURVE: Final = 56.0
"""Room for the curves between two columns, beside the names of edges."""
_LABEL_AT: Final = (0.7, 0.45, 0.2)
"""Where on its edge a name may be, the best place first: near the end, where the edges of one node have gone apart."""
_LINE: Final = 12.0
"""The height of a name."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """Where everything is.

    Attributes:
        places: The middle of each node.
        routes: For each edge the points where it begins, bends and ends; None for one that goes back or to its own node.
        labels: For each edge where its name is.
        width: The width of the whole.
        height: The height of the whole.
        is_sideways: Whether edges point to the right rather than downwards.
    """

    places: list[Point]
    routes: list[list[Point] | None]
    labels: list[Point]
    width: float
    height: float
    is_sideways: bool


def sheet_of(
    widths: Sequence[float], edges: Sequence[tuple[int, int, float]], parents: Sequence[int] | None = None
) -> Sheet:
    """Finds a place for everything.

    Args:
        widths: The width of each node.
        edges: For each edge the nodes that it joins, and the width of its name.
        parents: For each node the one beside which it is to stand in a large picture.
    """
    if parents is not None and len(widths) > _FEW:
        return _in_bands(widths, edges, parents)
    downwards = _downwards(widths, edges)
    return _sideways(widths, edges) if downwards.width > _WIDEST else downwards


def _downwards(widths: Sequence[float], edges: Sequence[tuple[int, int, float]]) -> Sheet:
    room = list(widths)
    for _, target, name in edges:
        room[target] = max(room[target], name)
    placement = place(room, [(source, target) for source, target, _ in edges], _GAP)
    points = [(MARGIN + across, MARGIN + HEIGHT / 2 + row * _ROW) for across, row in placement.nodes]
    routes: list[list[Point] | None] = []
    labels: list[Point] = []
    arrived: dict[int, list[tuple[Point, float]]] = {}
    for (source, target, name), bends in zip(edges, placement.routes, strict=True):
        (x1, y1), (x2, y2) = points[source], points[target]
        if y2 <= y1:
            routes.append(None)
            out = x1 + widths[source] / 2
            side = (out + 30, y1 + 4) if source == target else (_side(widths, points, source, target) - 12, 0.0)
            labels.append(side if source == target else (side[0], (y1 + y2) / 2 + 4))
            continue
        between = [(MARGIN + across, MARGIN + HEIGHT / 2 + row * _ROW) for across, row in bends]
        route = [(x1, y1 + HEIGHT / 2), *between, (x2, y2 - HEIGHT / 2)]
        routes.append(route)
        labels.append(_free(route[-2], route[-1], name, arrived.setdefault(target, [])))
        arrived[target].append((labels[-1], name))
    bent = [x for route in routes if route for x, _ in route]
    width = max([*bent, *(x + w / 2 for (x, _), w in zip(points, widths, strict=True))]) + MARGIN
    return Sheet(points, routes, labels, width, max(y for _, y in points) + HEIGHT / 2 + MARGIN, False)


def _sideways(widths: Sequence[float], edges: Sequence[tuple[int, int, float]]) -> Sheet:
    placement = place([HEIGHT] * len(widths), [(source, target) for source, target, _ in edges], _GAP_SIDEWAYS)
    columns = [column for _, column in placement.nodes]
    thickest = [0.0] * (max(columns) + 1)
    before = [0.0] * len(thickest)
    for column, width in zip(columns, widths, strict=True):
        thickest[column] = max(thickest[column], width)
    # edges come together where they arrive, so their names stand one before the other
    arriving = [0.0] * len(widths)
    for source, target, name in edges:
        if columns[source] < columns[target]:
            arriving[target] += name
            before[columns[target]] = max(before[columns[target]], arriving[target] + _CURVE)
    starts = [MARGIN + sum(thickest[:column]) + sum(before[: column + 1]) for column in range(len(thickest))]
    points = [
        (starts[column] + width / 2, MARGIN + across)
        for (across, column), width in zip(placement.nodes, widths, strict=True)
    ]
    routes: list[list[Point] | None] = []
    labels: list[Point] = []
    arrived = [0.0] * len(widths)
    for (source, target, name), bends in zip(edges, placement.routes, strict=True):
        (x1, y1), (x2, y2) = points[source], points[target]
        left = x2 - widths[target] / 2
        if columns[target] <= columns[source]:
            routes.append(None)
            out = x1 + widths[source] / 2
            labels.append(
                (out + 30, y1 + 4)
                if source == target
                else (_side(widths, points, source, target) - 12, (y1 + y2) / 2 + 4)
            )
            continue
        between = []
        # level over whole columns, so that no curve crosses the nodes beside it
        for across, column in bends:
            between += [(starts[column], MARGIN + across), (starts[column] + thickest[column], MARGIN + across)]
        leaving = [(x1 + widths[source] / 2, y1), (starts[columns[source]] + thickest[columns[source]], y1)]
        routes.append([*dict.fromkeys(leaving), *between, (left, y2)])
        labels.append((left - 12 - arrived[target] - name / 2, y2 + 4))
        arrived[target] += name
    width = max(x + w / 2 for (x, _), w in zip(points, widths, strict=True)) + MARGIN
    return Sheet(points, routes, labels, width, max(y for _, y in points) + HEIGHT / 2 + MARGIN, True)


def _in_bands(widths: Sequence[float], edges: Sequence[tuple[int, int, float]], parents: Sequence[int]) -> Sheet:
    arriving = [0.0] * len(widths)
    for source, target, name in edges:
        if source != target:
            arriving[target] += name
    room = [_CURVE] * len(widths)
    for node, names in enumerate(arriving[1:], start=1):
        room[parents[node]] = max(room[parents[node]], names + _CURVE)
    points: list[Point] = []
    for node, (width, line) in enumerate(zip(widths, lines_of(parents), strict=True)):
        above = parents[node]
        left = points[above][0] + widths[above] / 2 + room[above] if node else MARGIN
        points.append((left + width / 2, MARGIN + HEIGHT / 2 + line * (HEIGHT + _GAP_SIDEWAYS)))
    routes: list[list[Point] | None] = [None] * len(edges)
    labels: list[Point] = [(0.0, 0.0)] * len(edges)
    arrived = [0.0] * len(widths)
    # the edge of the tree arrives first, so that its name is next to its node
    for number in sorted(range(len(edges)), key=lambda number: parents[edges[number][1]] != edges[number][0]):
        source, target, name = edges[number]
        (x1, y1), (x2, y2) = points[source], points[target]
        out, left = x1 + widths[source] / 2, x2 - widths[target] / 2
        if left - out < _CURVE:
            is_own = source == target
            middle = (_side(widths, points, source, target) - 12, (y1 + y2) / 2 + 4)
            labels[number] = (out + 30, y1 + 4) if is_own else middle
            continue
        routes[number] = [(out, y1), (left, y2)]
        labels[number] = (left - 12 - arrived[target] - name / 2, y2 + 4)
        arrived[target] += name
    ends = [x + width / 2 for (x, _), width in zip(points, widths, strict=True)]
    back = [ends_of for ends_of, route in zip(edges, routes, strict=True) if route is None]
    sides = [_side(widths, points, source, target) for source, target, _ in back]
    bottom = max(y for _, y in points) + HEIGHT / 2 + MARGIN
    return Sheet(points, routes, labels, max([*ends, *sides]) + MARGIN, bottom, True)


def curve_of(sheet: Sheet, widths: Sequence[float], source: int, target: int, route: Sequence[Point] | None) -> str:
    """The path of an edge, as SVG writes it.

    Args:
        sheet: Where everything is.
        widths: The width of each node.
        source: The node where it begins.
        target: The node where it ends.
        route: Its points in the sheet.
    """
    if route is not None:
        step = _to_the_right if sheet.is_sideways else _down
        return f"M{route[0][0]:.1f} {route[0][1]:.1f}" + "".join(map(step, route, route[1:]))
    (x1, y1), (x2, y2) = sheet.places[source], sheet.places[target]
    out = x1 + widths[source] / 2
    if source == target:
        return (
            f"M{out:.1f} {y1 - 4:.1f} C{out + 34:.1f} {y1 - 22:.1f} {out + 34:.1f} {y1 + 22:.1f} {out:.1f} {y1 + 4:.1f}"
        )
    # Backwards: around the side.
    side, end = _side(widths, sheet.places, source, target), x2 + widths[target] / 2
    return f"M{out:.1f} {y1:.1f} C{side:.1f} {y1:.1f} {side:.1f} {y2:.1f} {end:.1f} {y2:.1f}"


def _side(widths: Sequence[float], points: Sequence[Point], source: int, target: int) -> float:
    return max(points[source][0] + widths[source] / 2, points[target][0] + widths[target] / 2) + 50


def _down(start: Point, end: Point) -> str:
    """A curve that leaves and arrives vertically."""
    middle = (start[1] + end[1]) / 2
    return f" C{start[0]:.1f} {middle:.1f} {end[0]:.1f} {middle:.1f} {end[0]:.1f} {end[1]:.1f}"


def _to_the_right(start: Point, end: Point) -> str:
    """A curve that leaves and arrives horizontally, and is level at its end, where the name is."""
    if start[1] == end[1]:
        return f" L{end[0]:.1f} {end[1]:.1f}"
    turn = min(end[0], start[0] + _CURVE)
    middle = (start[0] + turn) / 2
    return f" C{middle:.1f} {start[1]:.1f} {middle:.1f} {end[1]:.1f} {turn:.1f} {end[1]:.1f} L{end[0]:.1f} {end[1]:.1f}"


def _free(start: Point, end: Point, width: float, others: Sequence[tuple[Point, float]]) -> Point:
    """A place for a name on the last curve of an edge, apart from the names of other edges that arrive at the same node."""
    middle = (start[1] + end[1]) / 2
    points = [
        (_along(at, start[0], start[0], end[0], end[0]), _along(at, start[1], middle, middle, end[1]) + 4)
        for at in _LABEL_AT
    ]
    for x, y in points:
        if all(abs(x - a) >= (width + w) / 2 or abs(y - b) >= _LINE for (a, b), w in others):
            return x, y
    return points[0]


def _along(t: float, a: float, b: float, c: float, d: float) -> float:
    """A coordinate of the point at ``t`` on a cubic curve."""
    u = 1 - t
    return u**3 * a + 3 * u**2 * t * b + 3 * u * t**2 * c + t**3 * d
