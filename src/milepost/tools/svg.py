"""Pictures as SVG and as Graphviz DOT."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from milepost.tools.layout import place
from milepost.tools.picture import COLOURS, OBJECT, DrawnNode, Picture

_LETTER: Final = 6.6
"""Width of an average letter at 11 pixels; a little generous, because fonts differ."""
_HEIGHT: Final = 22.0
_ROW: Final = 92.0
_GAP: Final = 22.0
_MARGIN: Final = 24.0
_MOST_LETTERS: Final = 40
_LABEL_AT: Final = 0.7

Point = tuple[float, float]

_STYLE: Final = """
text { font: 11px system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; text-anchor: middle; }
.node text { fill: #ffffff; }
.edge path { fill: none; stroke: #80868b; stroke-width: 1.3; }
.edge text { fill: #3c4043; stroke: #ffffff; stroke-width: 4px; paint-order: stroke; stroke-linejoin: round; }
.edge.slot path { stroke: #e8710a; stroke-dasharray: 4 3; }
.background { fill: #ffffff; }
""".strip()


def to_svg(picture: Picture, title: str) -> str:
    """Draws a picture.

    Args:
        picture: What to draw.
        title: What it shows; read out by screen readers.

    Returns:
        A whole SVG document, without references to anything outside it.
    """
    widths = [_width(node) for node in picture.nodes]
    bundles = _bundles(picture)
    room = list(widths)
    for _, target, _, name in bundles:
        room[target] = max(room[target], len(_short(name)) * _LETTER + 8)
    placement = place(room, [(source, target) for source, target, _, _ in bundles], _GAP)
    places = [_point(at) for at in placement.nodes]
    routes = [[_point(at) for at in route] for route in placement.routes]
    width = max(x + w / 2 for (x, _), w in zip(places, widths, strict=True)) + _MARGIN
    height = max(y for _, y in places) + _HEIGHT / 2 + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img">',
        f"<title>{_text(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="background" width="{width:.0f}" height="{height:.0f}" rx="8"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0.5 L8 4 L0 7.5 z" fill="#80868b"/></marker></defs>',
        *(_edge(*bundle, places, widths, route) for bundle, route in zip(bundles, routes, strict=True)),
        *(_node(node, *at, w) for node, at, w in zip(picture.nodes, places, widths, strict=True)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def to_dot(picture: Picture, title: str) -> str:
    """Writes a picture in Graphviz' language."""
    lines = [f"digraph {_quoted(title)} {{", '  node [style=filled, fontcolor=white, shape=box, fontname="sans"];']
    for number, node in enumerate(picture.nodes):
        lines.append(f"  {number} [label={_quoted(node.label)}, fillcolor={_quoted(COLOURS[node.role])}];")
    for edge in picture.edges:
        style = ", style=dashed" if edge.dashed else ""
        lines.append(f"  {edge.source} -> {edge.target} [label={_quoted(edge.name)}{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def _width(node: DrawnNode) -> float:
    return max(_HEIGHT, len(_short(node.label)) * _LETTER + 16) if node.label else _HEIGHT


def _node(node: DrawnNode, x: float, y: float, width: float) -> str:
    colour = COLOURS[node.role]
    if not node.label:
        shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_HEIGHT / 2 - (2 if node.role == OBJECT else 0):.1f}" fill="{colour}"/>'
        return f'<g class="node {node.role}">{shape}</g>'
    return (
        f'<g class="node {node.role}">'
        f'<rect x="{x - width / 2:.1f}" y="{y - _HEIGHT / 2:.1f}" width="{width:.1f}" height="{_HEIGHT:.0f}" '
        f'rx="{_HEIGHT / 2:.0f}" fill="{colour}"/>'
        f'<text x="{x:.1f}" y="{y + 4:.1f}">{_text(_short(node.label))}</text></g>'
    )


def _bundles(picture: Picture) -> list[tuple[int, int, bool, str]]:
    """The edges as source, target, whether dashed, and names; those that join the same two nodes share one line."""
    names: dict[tuple[int, int, bool], list[str]] = {}
    for edge in picture.edges:
        names.setdefault((edge.source, edge.target, edge.dashed), []).append(edge.name)
    return [(*ends, ", ".join(dict.fromkeys(each))) for ends, each in names.items()]


def _point(at: tuple[float, int]) -> Point:
    return _MARGIN + at[0], _MARGIN + _HEIGHT / 2 + at[1] * _ROW


def _edge(
    source: int,
    target: int,
    dashed: bool,
    name: str,
    places: Sequence[Point],
    widths: Sequence[float],
    route: Sequence[Point],
) -> str:
    (x1, y1), (x2, y2) = places[source], places[target]
    half = _HEIGHT / 2
    out = x1 + widths[source] / 2
    if source == target:
        path = (
            f"M{out:.1f} {y1 - 4:.1f} C{out + 34:.1f} {y1 - 22:.1f} {out + 34:.1f} {y1 + 22:.1f} {out:.1f} {y1 + 4:.1f}"
        )
        at = (out + 30, y1 + 4)
    elif y2 <= y1:
        # Backwards: around the side.
        end = x2 + widths[target] / 2
        side = max(out, end) + 50
        path = f"M{out:.1f} {y1:.1f} C{side:.1f} {y1:.1f} {side:.1f} {y2:.1f} {end:.1f} {y2:.1f}"
        at = (side - 12, (y1 + y2) / 2 + 4)
    else:
        points = [(x1, y1 + half), *route, (x2, y2 - half)]
        path = f"M{x1:.1f} {y1 + half:.1f}" + "".join(map(_curve, points, points[1:]))
        # Nearer to the end, where the edges of one node have gone apart.
        (xa, ya), (xb, yb) = points[-2:]
        at = (_along(xa, xa, xb, xb), _along(ya, (ya + yb) / 2, (ya + yb) / 2, yb) + 4)
    kind = "edge slot" if dashed else "edge"
    label = f'<text x="{at[0]:.1f}" y="{at[1]:.1f}">{_text(_short(name))}</text>' if name else ""
    return f'<g class="{kind}"><path d="{path}" marker-end="url(#tip)"/>{label}</g>'


def _curve(start: Point, end: Point) -> str:
    """A curve that leaves and arrives vertically."""
    middle = (start[1] + end[1]) / 2
    return f" C{start[0]:.1f} {middle:.1f} {end[0]:.1f} {middle:.1f} {end[0]:.1f} {end[1]:.1f}"


def _along(a: float, b: float, c: float, d: float) -> float:
    """A coordinate of the point on a cubic curve where its label goes."""
    t, u = _LABEL_AT, 1 - _LABEL_AT
    return u**3 * a + 3 * u**2 * t * b + 3 * u * t**2 * c + t**3 * d


def _short(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…"


def _text(text: str) -> str:
    """Text for XML, which has no place for most control characters even when escaped."""
    return escape("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text))


def _quoted(text: str) -> str:
    escaped = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return '"' + escaped.replace("\\", "\\\\").replace('"', '\\"') + '"'
