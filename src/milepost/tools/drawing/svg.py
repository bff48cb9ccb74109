"""Pictures as SVG and as Graphviz DOT."""

from __future__ import annotations

from html import escape
from typing import Final

from milepost.tools.drawing.picture import COLOURS, OBJECT, OPTIMIZER, SLOT, VARIABLE, DrawnNode, Picture
from milepost.tools.drawing.sheet import HEIGHT, MARGIN, Point, curve_of, sheet_of

_LETTER: Final = 6.6
"""Width of an average letter at 11 pixels; a little generous, because fonts differ."""
_NARROW_LETTER: Final = 5.2
"""Width of a narrow letter; what is drawn behind a text may not be wider than it."""
_MOST_LETTERS: Final = 40
_MOST_LETTERS_OF_EDGES: Final = 64
_LONGEST_TITLE: Final = 90
_LEGEND: Final = {OBJECT: "object", OPTIMIZER: "optimizer", VARIABLE: "variable", SLOT: "slot variable"}
_FOLDED: Final = "several, folded"
_TIMES: Final = "× n: n equal blocks, drawn once"

STYLE: Final = """
.object-graph text { font: 11px system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; text-anchor: middle; }
.object-graph .node text { fill: #ffffff; }
.object-graph .slot text { fill: #1f2328; }
.object-graph .folded rect { fill: #ffffff; stroke-width: 1.5; stroke-dasharray: 3 2; }
.object-graph .folded rect.behind { stroke-dasharray: none; stroke-opacity: 0.45; }
.object-graph .folded text { fill: #3c4043; }
.object-graph .edge path { fill: none; stroke: #80868b; stroke-width: 1.3; }
.object-graph .edge-name text { fill: #3c4043; stroke: #ffffff; stroke-width: 4px; paint-order: stroke; stroke-linejoin: round; }
.object-graph .edge-name rect { fill: #ffffff; }
.object-graph .edge.slot path { stroke: #e8710a; stroke-dasharray: 4 3; }
.object-graph .legend text, .object-graph .title { fill: #3c4043; text-anchor: start; }
.object-graph .background { fill: #ffffff; }
""".strip()
"""The style of a picture. It concerns nothing else on a page that the picture is part of."""


def to_svg(picture: Picture, title: str) -> str:
    """Draws a picture.

    Args:
        picture: What to draw.
        title: What it shows; read out by screen readers, and written below. Of a long one, the end is what matters.

    Returns:
        A whole SVG document, without references to anything outside it.
    """
    widths = [_width(node) for node in picture.nodes]
    bundles = _bundles(picture)
    sheet = sheet_of(
        widths,
        [
            (source, target, len(_short(name, _MOST_LETTERS_OF_EDGES)) * _LETTER + 8)
            for source, target, _, name in bundles
        ],
        [node.parent for node in picture.nodes],
    )
    legend, legend_width = _legend(picture, sheet.height)
    written = title if len(title) <= _LONGEST_TITLE else f"…{title[1 - _LONGEST_TITLE :]}"
    width = max(sheet.width, legend_width, len(written) * _LETTER + 2 * MARGIN)
    height = sheet.height + 2 * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="object-graph" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img">',
        f"<title>{_text(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="background" width="{width:.0f}" height="{height:.0f}" rx="8"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0.5 L8 4 L0 7.5 z" fill="#80868b"/></marker></defs>',
        *(
            f'<g class="{"edge slot" if dashed else "edge"}"><path d="{curve_of(sheet, widths, source, target, route)}" '
            'marker-end="url(#tip)"/></g>'
            for (source, target, dashed, _), route in zip(bundles, sheet.routes, strict=True)
        ),
        # after all lines, none of which may cross a name
        *(_edge_name(name, at) for (*_, name), at in zip(bundles, sheet.labels, strict=True) if name),
        *(_node(node, *at, w) for node, at, w in zip(picture.nodes, sheet.places, widths, strict=True)),
        legend,
        f'<text class="title" x="{MARGIN:.0f}" y="{sheet.height + HEIGHT + 4:.0f}">{_text(written)}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def to_dot(picture: Picture, title: str) -> str:
    """Writes a picture in Graphviz' language."""
    lines = [f"digraph {_quoted(title)} {{", '  node [style=filled, fontcolor=white, shape=box, fontname="sans"];']
    for number, node in enumerate(picture.nodes):
        folded = ', style="dashed,bold", peripheries=2' if node.folded else ""
        font = ", fontcolor=black" if node.folded or node.role == SLOT else ""
        colour = "color" if node.folded else "fillcolor"
        lines.append(f"  {number} [label={_quoted(node.label)}, {colour}={_quoted(COLOURS[node.role])}{folded}{font}];")
    for edge in picture.edges:
        style = ", style=dashed" if edge.dashed else ""
        lines.append(f"  {edge.source} -> {edge.target} [label={_quoted(edge.name)}{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def _width(node: DrawnNode) -> float:
    return max(HEIGHT, len(_short(node.label)) * _LETTER + 16) if node.label else HEIGHT


def _node(node: DrawnNode, x: float, y: float, width: float) -> str:
    colour = COLOURS[node.role]
    if not node.label:
        shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{HEIGHT / 2 - (2 if node.role == OBJECT else 0):.1f}" fill="{colour}"/>'
        return f'<g class="node {node.role}">{shape}</g>'
    box = f'y="{y - HEIGHT / 2:.1f}" width="{width:.1f}" height="{HEIGHT:.0f}" rx="{HEIGHT / 2:.0f}"'
    left = x - width / 2
    text = f'<text x="{x:.1f}" y="{y + 4:.1f}">{_text(_short(node.label))}</text>'
    if node.folded:
        behind = f'<rect class="behind" x="{left + 4:.1f}" {box} stroke="{colour}"/>'
        return f'<g class="node {node.role} folded">{behind}<rect x="{left:.1f}" {box} stroke="{colour}"/>{text}</g>'
    return f'<g class="node {node.role}"><rect x="{left:.1f}" {box} fill="{colour}"/>{text}</g>'


def _bundles(picture: Picture) -> list[tuple[int, int, bool, str]]:
    """The edges as source, target, whether dashed, and names; those that join the same two nodes share one line."""
    names: dict[tuple[int, int, bool], list[str]] = {}
    for edge in picture.edges:
        names.setdefault((edge.source, edge.target, edge.dashed), []).append(edge.name)
    return [(*ends, ", ".join(dict.fromkeys(each))) for ends, each in names.items()]


def _edge_name(name: str, at: Point) -> str:
    text, behind = _short(name, _MOST_LETTERS_OF_EDGES), ""
    if " " in text or "_" in text:  # through which a line would be seen
        width = len(text) * _NARROW_LETTER
        behind = f'<rect x="{at[0] - width / 2:.1f}" y="{at[1] - 9:.1f}" width="{width:.1f}" height="11"/>'
    return f'<g class="edge-name">{behind}<text x="{at[0]:.1f}" y="{at[1]:.1f}">{_text(text)}</text></g>'


def _legend(picture: Picture, top: float) -> tuple[str, float]:
    """What the colours mean that the picture has, below it; and the width of that."""
    roles = {node.role for node in picture.nodes}
    entries = [(text, f'fill="{COLOURS[role]}"') for role, text in _LEGEND.items() if role in roles]
    if any(node.folded for node in picture.nodes):
        entries.append((_FOLDED, f'fill="none" stroke="{COLOURS[OBJECT]}" stroke-dasharray="3 2"'))
    if any(node.times > 1 for node in picture.nodes):
        entries.append((_TIMES, f'fill="{COLOURS[OBJECT]}"'))
    parts, x = [], MARGIN
    for text, paint in entries:
        parts.append(f'<circle cx="{x + 5:.0f}" cy="{top:.0f}" r="5" {paint}/>')
        parts.append(f'<text x="{x + 15:.0f}" y="{top + 4:.0f}">{text}</text>')
        x += len(text) * _LETTER + 32
    return f'<g class="legend">{"".join(parts)}</g>', x


def _short(text: str, most: int = _MOST_LETTERS) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _text(text: str) -> str:
    """Text for XML, which has no place for most control characters even when escaped."""
    return escape("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text))


def _quoted(text: str) -> str:
    escaped = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return '"' + escaped.replace("\\", "\\\\").replace('"', '\\"') + '"'
