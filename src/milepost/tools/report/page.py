"""The page itself: one HTML document that loads nothing and runs nothing but its own script.

Data is JSON, compressed and in base64, so no text of a checkpoint is ever parsed as HTML. The page's policy names its style and its script by
their hashes, and allows nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any, Final

from milepost.tools.report.contents import DETAILS, Detail

LARGEST_PAGE: Final = 2_900_000
"""The most bytes of a page. A larger one is made again with less detail."""
_FILES: Final = Path(__file__).parent / "page"
_SCRIPTS: Final = (
    "text.js",
    "data.js",
    "list.js",
    "charts.js",
    "overview.js",
    "treemap.js",
    "tree.js",
    "tensors.js",
    "changes.js",
    "tensor.js",
    "main.js",
)
"""The parts of the script, in this order."""


def page_of(contents: Callable[[Detail], dict[str, Any]], *, title: str, summary: str, picture: str = "") -> str:
    """Makes the page.

    Args:
        contents: Gives the data with as much detail as it is told.
        title: What the page is about, as `milepost.tools.terminal.shown` gives it.
        summary: A sentence for those who run no scripts.
        picture: An SVG document of `milepost.tools.drawing.svg`, or nothing.
    """
    page = ""
    for detail in DETAILS:
        page = _page(contents(detail), title, summary, picture)
        if len(page) <= LARGEST_PAGE:
            break
    return page


def _page(contents: dict[str, Any], title: str, summary: str, picture: str) -> str:
    style = _read("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(map(_read, _SCRIPTS)) + "\n})();\n"
    text = json.dumps(contents, allow_nan=False, separators=(",", ":"))
    data = base64.b64encode(zlib.compress(text.encode(), 9 if len(text) < 1 << 22 else 6)).decode()
    start, svg_style, rest = _divided(picture)
    styles = [style, *([svg_style] if picture else [])]
    policy = "; ".join(
        [
            "default-src 'none'",
            f"style-src {' '.join(map(_hash, styles))}",
            f"script-src {_hash(script)}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    parts = {
        "POLICY": policy,
        "TITLE": escape(title),
        "SUMMARY": escape(summary),
        "STYLE": style,
        "PICTURE": f"{start}<style>{svg_style}</style>{rest}" if picture else "",
        "DATA": data,
        "SCRIPT": script,
    }
    pieces = _read("page.html").split("@@")
    # every second piece is the name of a part; what is put in is not looked through again
    return "".join(parts[piece] if position % 2 else piece for position, piece in enumerate(pieces))


def _divided(picture: str) -> tuple[str, str, str]:
    """An SVG document before, in and after its style."""
    start, _, rest = picture.partition("<style>")
    style, _, rest = rest.partition("</style>")
    return start, style, rest


def _hash(text: str) -> str:
    """The name of a style or script in a policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")
