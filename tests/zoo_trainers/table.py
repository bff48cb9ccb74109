"""Writes the table of runs of trainers: ``python -m tests.zoo_trainers.table > docs/trainers_coverage.md``.

With names of files, it has the results that `tests.zoo_trainers.results` printed into them, the last one of each row.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.notes import Notes
from tests.zoo_trainers.results import TRAINERS, rows, tried

PAGE = Path(__file__).parents[2] / "docs" / "trainers_coverage.md"
_LONGEST = 300
_UNTRIED: dict[str, Any] = {"verdict": "not tried", "tried": 0}
_HEAD = """# Runs of trainers that are killed and resumed

Each set-up is trained once without milepost. Then its run is saved after each batch, killed, and resumed by a new process, which is
killed in its turn, up to thirteen times in a row. Another run is saved at the ends of epochs only. Everything is compared bit for bit with the
run without milepost: each batch and its loss, each validation, what is logged, the random numbers that hooks draw, and at the end the weights,
the optimizers, the schedulers and the state of callbacks.

The moments are: before a batch is trained, in a hook after a batch, in a validation and after it, in hooks at the end of an epoch and at the start of
the next one, after a save, and at the end of the run. Each kill is SIGKILL. SIGTERM, at which milepost saves and ends the run, is tried too.
A moment that the run of a set-up does not reach is left out. A note says so where fewer were tried.

- **equal**: nothing differs.
- **refused**: milepost raises an error before anything is trained; a note quotes it.
- **inexact, said**: something differs, and the page that the note quotes says so.
- **DIFFERS**: something differs, and nothing says so.
- **—**: it cannot be tried; a note says why.
- **not tried**: the files of which this page was made had no result.

With {packages}. Three epochs of five batches, of which the last is smaller, unless the set-up says otherwise. The data depends on the global
random state, and that of training on how much was read before. Every run is that of one process on the CPU.

`fit()` of Keras has [a page of its own](keras_fit_coverage.md), with TensorFlow, JAX, PyTorch and Keras 2.

Written by `python -m tests.zoo_trainers.table`. A test runs some of the rows at fewer moments, and compares them with this page.
"""
_PACKAGES = {
    "lightning": "Lightning",
    "transformers": "transformers",
    "accelerate": "Accelerate",
    "pytorch-ignite": "ignite",
    "torchdata": "torchdata",
    "torch": "PyTorch",
}


def table(results: Iterable[dict[str, Any]]) -> str:
    """The page, in Markdown."""
    found = {(result["trainer"], result["row"]): result for result in results}
    packages = [f"{title} {version(name)}" for name, title in _PACKAGES.items()]
    notes = Notes()
    lines = [_HEAD.format(packages=", ".join(packages[:-1]) + f" and {packages[-1]}")]
    for trainer in TRAINERS:
        lines += [f"## {trainer}\n", "| set-up | resumed runs | resumes |", "|---|---|---|"]
        lines += [line(found.get((trainer, name), {"row": name, **_UNTRIED}), notes) for name in rows(trainer)]
        lines.append("")
    return "\n".join([*lines, "## Notes", "", *notes.lines(), ""])


def line(result: dict[str, Any], notes: Notes) -> str:
    """The row of a result."""
    said = f"**{result['verdict']}**" if result["verdict"] == "DIFFERS" else result["verdict"]
    note = f" {notes.reference(_brief(result['why']))}" if result.get("why") else ""
    return f"| {result['row']} | {said}{note} | {result['tried']} |"


def published() -> dict[tuple[str, str], str]:
    """The verdicts that the page shows, by section and set-up."""
    verdicts = {}
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        for row in re.findall(r"^\| (.*) \| (.*) \| \d+ \|$", section, re.MULTILINE):
            verdicts[section.splitlines()[0], row[0]] = re.sub(r" \[\d+\]$", "", row[1]).strip("*")
    return verdicts


def _brief(message: str) -> str:
    plain = re.sub(r"/\S*/(\S+)", r"\1", " ".join(message.split()))
    plain = plain if len(plain) <= _LONGEST else plain[:_LONGEST].rsplit(" ", 1)[0] + " ..."
    return re.sub(r"([<>|*])", r"\\\1", plain)


def _printed(names: list[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        yield from map(json.loads, Path(name).read_text().splitlines())


if __name__ == "__main__":
    print(table(_printed(sys.argv[1:]) if sys.argv[1:] else tried()), end="")
