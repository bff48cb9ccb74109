"""The page of all objects that were tried."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.libraries.catalogue import LIBRARIES
from benchmarks.libraries.verdict import EXACT, OUTCOMES, SILENT, UNTRIED

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "libraries.json"
PAGE = ROOT / "docs" / "libraries.md"
_LONGEST = 240
_HEAD = """# Whole libraries

Each object was made, used for three steps, and saved twice: with `milepost.Checkpoint`, and in the library's own way. Then it was used for
three more steps. Another process made the object with different initial values, restored it, and repeated these three steps: once from
milepost's checkpoint, with `assert_consumed()`, and once from the library's own file. The state that the library's own way of saving
holds was compared after the restore and after the steps, as were the outputs of each step, bit for bit.

- **exact**: Everything was equal.
- **refused**: milepost raised an error that names what is missing.
- **differs, with a warning**: milepost warned of what is missing.
- **the library's own saving differs as well**: Neither is exact, and milepost restored at least as much.
- **differs, and nobody said so**: milepost silently lost something that the library's own saving keeps.
- **not tried**: The object could not be made or used here.

`python -m benchmarks.libraries` writes this page, and `--further` tries those objects that it does not have yet. Objects that are exact in both ways are only named.

"""

EXPORTS = ROOT / "benchmarks" / "results" / "exports.json"
_OF_EXPORTS = """
## Files for PyTorch

Models were saved by `milepost.Checkpoint`, converted to each kind of file, and loaded by `load_state_dict(strict=True)` into a second model with other
values: a `.pt` by `torch.load(weights_only=True)`, a `.safetensors` by safetensors. The numbers are those of models that then had the same state, bit
for bit. A `.safetensors` has no versions of classes. A class that needs one, such as MNASNet of torchvision, refuses such a file of any writer.
`python -m benchmarks.libraries.exports` writes this section.

"""

Results = Mapping[str, Mapping[str, Any]]


def exports() -> dict[str, Any]:
    """What became of converted models: for each library its versions, and what differs in each kind of file of each model."""
    found: dict[str, Any] = json.loads(EXPORTS.read_text()) if EXPORTS.exists() else {}
    return found


def write(found: Results | None = None) -> None:
    """Writes the page, of the last results unless others are given."""
    PAGE.write_text(page(results() if found is None else found))


def results() -> dict[str, Any]:
    """What the last run found: for each library its versions and what became of each object."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def counted(objects: Mapping[str, Mapping[str, str]]) -> str:
    """How many objects there are of each outcome."""
    counts = Counter(each["outcome"] for each in objects.values())
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])


def page(found: Results) -> str:
    """The page, in Markdown."""
    lines = [_HEAD + "| library | objects | " + " | ".join(OUTCOMES) + " | its own saving is exact |"]
    lines.append("| --- " * (len(OUTCOMES) + 3) + "|")
    for library, tried in found.items():
        objects = tried["objects"].values()
        counts = Counter(each["outcome"] for each in objects)
        own = sum(each["own"] == EXACT for each in objects)
        number = f"{len(objects)} of {tried['of']}" if tried["of"] > len(objects) else len(objects)
        cells = [f"[{library}](#{_anchor(library)})", number, *(counts[outcome] for outcome in OUTCOMES), own]
        lines.append(_row(*cells))
    for library, tried in found.items():
        lines += ["", f"## {library}", "", *_section(library, tried)]
    return "\n".join([*lines, *_exports(exports())]) + "\n"


def _exports(found: Results) -> list[str]:
    if not found:
        return []
    forms = list(dict.fromkeys(form for tried in found.values() for each in tried["objects"].values() for form in each))
    forms = [form for form in forms if form != "untried"]
    lines = [_OF_EXPORTS + _row("library", "models", *forms, "not tried"), _row(*["---"] * (len(forms) + 3))]
    notes = []
    for library, tried in found.items():
        objects = tried["objects"]
        equal = [sum(each.get(form) == "" for each in objects.values()) for form in forms]
        lines.append(_row(library, len(objects), *equal, sum("untried" in each for each in objects.values())))
        for name, each in objects.items():
            for note, of in _grouped({form: text for form, text in each.items() if text}).items():
                notes.append(
                    f"- {library}, `{name}`, {'not tried' if of == ['untried'] else ', '.join(of)}: {_shown(note)}"
                )
    versions = {f"{package} {version}" for tried in found.values() for package, version in tried["versions"].items()}
    dates = sorted({tried["date"] for tried in found.values()})
    return [
        *lines,
        "",
        f"Tried on {' and '.join(dates)} with {', '.join(sorted(versions))}.",
        *([""] if notes else []),
        *notes,
    ]


def _grouped(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """The names that have each text."""
    found: dict[str, list[str]] = {}
    for name, text in texts.items():
        found.setdefault(text, []).append(name)
    return found


def silent(found: Results) -> list[str]:
    """The objects that differ without a word."""
    return [
        f"{library}: {name}: {each['note']}"
        for library, tried in found.items()
        for name, each in tried["objects"].items()
        if each["outcome"] == SILENT
    ]


def _section(library: str, tried: Mapping[str, Any]) -> list[str]:
    versions = ", ".join(f"{package} {version}" for package, version in tried["versions"].items())
    objects: Mapping[str, Mapping[str, str]] = tried["objects"]
    exact = [name for name, each in objects.items() if each["outcome"] == each["own"] == EXACT]
    others = [name for name, each in objects.items() if name not in exact and each["outcome"] != UNTRIED]
    untried = [name for name, each in objects.items() if each["outcome"] == UNTRIED]
    lines = [f"Tried on {tried['date']} with {versions}. Its own way of saving: {LIBRARIES[library].own}.", ""]
    if exact:
        lines += [f"Exact in both ways, {len(exact)}: {', '.join(f'`{name}`' for name in exact)}.", ""]
    if others:
        lines += [_row("object", "milepost", "", "its own saving"), _row(*["---"] * 4)]
        lines += [
            _row(f"`{name}`", objects[name]["outcome"], _shown(objects[name]["note"]), _shown(objects[name]["own"]))
            for name in others
        ]
        lines.append("")
    if untried:
        lines += ["Not tried:", "", *(f"- `{name}`: {_shown(objects[name]['note'])}" for name in untried), ""]
    return lines[:-1]


def _shown(text: str) -> str:
    short = text if len(text) <= _LONGEST else text[:_LONGEST] + " …"
    return re.sub(r"([<>|*\[\]_`])", r"\\\1", short)


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-")


def _row(*cells: Any) -> str:
    return f"| {' | '.join(map(str, cells))} |"
