"""The table in the README, and the page that says what was seen for each cell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.experiments import (
    ROWS,
    code,
    compressed,
    deferred,
    failed_restore,
    fallback,
    flipped_bytes,
    killed_series,
    mapped,
    one_file,
    tensorflow_files,
)
from benchmarks.peers.libraries import COLUMNS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "peers.json"
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "peers.md"
_BEGIN = "<!-- written by python -m benchmarks.peers -->\n"
_END = "<!-- end of what benchmarks.peers wrote -->\n"
KEPT = "<!-- written by python -m tests.peers -->\n"
"""Where the page has the section of another program, which goes to the end of the page."""
_HEAD = """# What each library does, and how that was seen

`python -m benchmarks.peers` runs each library and writes this page and the table in the README, which has some of the rows and
columns. A cell is *yes* if all experiments
succeeded, *no* if none did, and *partly* otherwise. The experiments and their results are below the table. Each library is used in the usual
way, with its default options: TensorFlow, Orbax and milepost with their managers, and the others with a number in the file name, of which the
highest is restored. Keras' `load_model` makes a new model, so there is nothing to defer and nothing that does not fit. *By default* means that
an option for trusted files turns it off. In the last two rows, others do what milepost does not.

No experiment used an object store, a GPU, or more than one machine. According to their documentation, TensorFlow, Orbax and
`torch.distributed.checkpoint` (through fsspec) write to object stores, which milepost does not. Orbax,
`torch.distributed.checkpoint` and milepost save from many machines and restore to a different layout of devices. TensorFlow can save from several processes within its distribution strategies, which
were not tested.

"""

_ROWS_OF_README = (
    deferred,
    failed_restore,
    flipped_bytes,
    killed_series,
    fallback,
    tensorflow_files,
    code,
    mapped,
    one_file,
    compressed,
)
_COLUMNS_OF_README = ("milepost", "tf.train.Checkpoint", "Orbax", "torch DCP", "torch.save", "safetensors")

Results = Mapping[str, Mapping[str, Any]]


def results() -> Results:
    """What the last run found: for each library its versions and findings, by the row's key."""
    found: Results = json.loads(RESULTS.read_text())
    return found


def page(found: Results, text: str) -> str:
    """The page of all findings, in Markdown, with the section of `tests.peers` that its text has now."""
    parts = [_HEAD, _table(found, ROWS, _columns(found), lambda row: f"#{_anchor(row)}")]
    for row in ROWS:
        parts.append(f"\n## {row.TITLE[0].upper()}{row.TITLE[1:]}\n\n{row.HOW}\n\n")
        for title in _columns(found):
            finding = found[title]["findings"][row.KEY]
            seen = "; ".join(f"{kind}: {outcome}" for kind, outcome in finding["seen"].items())
            parts.append(f"- {title}: **{finding['cell']}** ({seen})\n")
    versions = dict(pair for title in _columns(found) for pair in found[title]["versions"].items())
    parts.append(f"\nTried on {max(found[title]['date'] for title in _columns(found))} with ")
    parts.append(", ".join(f"{package} {version}" for package, version in versions.items()) + ".\n")
    _, mark, section = text.partition(KEPT)
    return "".join([*parts, mark, section])


def readme(text: str, found: Results) -> str:
    """The README's text with the table in its place."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    table = _table(found, _ROWS_OF_README, _COLUMNS_OF_README, lambda row: f"docs/peers.md#{_anchor(row)}")
    return f"{before}{_BEGIN}{table}{_END}{after}"


def _columns(found: Results) -> list[str]:
    return [title for title in COLUMNS if title in found]


def _table(found: Results, rows: Sequence[Any], columns: Sequence[str], target: Callable[[Any], str]) -> str:
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    for row in rows:
        cells = [found[title]["findings"][row.KEY]["cell"] for title in columns]
        lines.append([row.TITLE, *(cell if cell in ("yes", "no") else f"[{cell}]({target(row)})" for cell in cells)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _anchor(row: Any) -> str:
    """The name that a heading has as the target of a link."""
    return re.sub(r"[^a-z0-9 -]", "", row.TITLE.lower()).replace(" ", "-")
