"""Writes the table of runs that go on: ``python -m tests.zoo_fit.table > docs/keras_fit_coverage.md``.

With names of files, the published page gets the rows that `tests.zoo_fit.child` printed into them with ``--everywhere``. All other
rows stay.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.notes import Notes
from tests.zoo_fit.data import BATCHES, EPOCHS
from tests.zoo_fit.results import Results, by_trainer, run_all
from tests.zoo_fit.rows import SECTIONS, Row, rows
from tests.zoo_fit.trainers import TRAINERS

PARTLY = " in part"
"""Follows the verdict of a row that was not tried everywhere."""
PAGE = Path(__file__).parents[2] / "docs" / "keras_fit_coverage.md"
_LONGEST = 300
_HEAD = """# Runs of `fit()` that are interrupted and resumed

Runs with `CheckpointCallback` that are interrupted and resumed by a new process, three times in a row. Each process saves
right after it has resumed the run, and the next one continues from there. Every process also trains to the end. All that
came out is compared with the run that was never interrupted, bit for bit: the loss after each batch, the history, its
epochs, the weights, the variables of the optimizer, its iterations and learning rate, the number of steps that was saved,
and the state of the other callbacks.

- **equal**: nothing differs, at any place that is named above the table.{partly}
- **refused**: milepost raises an error before anything is trained; a note quotes it.
- **refused late**: milepost raises an error, after something was trained.
- **inexact, said**: something differs, and a warning or [the page on `fit()`](keras_fit.md) says so.
- **DIFFERS**: something differs, and nothing says so.
- **—**: it cannot be tried; a note says why.
- A number in brackets refers to the notes below the tables.

With Keras {keras} on TensorFlow {tensorflow}, JAX {jax} and PyTorch {torch}, and tf_keras {tf_keras}. {epochs} epochs of
{batches} batches, of which the last is smaller.

Written by `python -m tests.zoo_fit.table`. A test runs some of the rows, each at a few places, and compares them with
this page.
"""
_PARTLY = """
- **equal in part**: nothing differs at the places that were tried, which are fewer: at least three resumes in a row about
  the end of an epoch, or one kind of interruption at one call."""
_SAID = {"inexact": "inexact, said", "DIFFERS": "**DIFFERS**", "refused late": "**refused late**"}
_VERDICTS = {said.strip("*"): verdict for verdict, said in _SAID.items()}
_SECTIONS = {
    "data": """## Kinds of data

Saved after each batch and at each epoch's end, and resumed at every one of these places: at every third, a row of three
resumes begins. Then saved at each epoch's end only, and resumed at all of these.
""",
    "callbacks": """## Other callbacks

With another callback in the list. Saved after each batch and at each epoch's end. Resumed at every one of these places in
the first epoch, and in the other epochs after the first and the last batch and at the end.
""",
    "models": """## Models

Saved after each batch and at each epoch's end, with arrays, and resumed at every one of these places: at every third, a
row of three resumes begins.
""",
    "saves": """## When it is saved

With arrays and validation, unless the row says otherwise. Resumed at every place where the run was saved: at every third,
a row of three resumes begins.
""",
    "interruptions": """## Kinds of interruption

With arrays, saved after each batch and at each epoch's end, unless the row says otherwise. "Killed" is SIGKILL. An
interruption is tried at each call of the method in the run with PyTorch, and at the first, the middle and the last call
with the others. A run that is taken up is interrupted again at the second call, twice, and then trains to its end.
""",
}


def published(page: str) -> Results:
    """The results that a page shows."""
    notes = dict(re.findall(r"^(\d+)\. (.*)$", page, re.MULTILINE))
    results: Results = {trainer: {} for trainer in TRAINERS}
    for section, heading in _SECTIONS.items():
        _, _, text = page.partition(heading)
        for line in text.partition("\n## ")[0].splitlines():
            name, *verdicts = [cell.strip() for cell in line.strip("|").split(" | ")]
            for trainer, verdict in zip(TRAINERS, verdicts, strict=False):
                words, _, note = verdict.strip("* ").partition(" [")
                result = {"verdict": _VERDICTS.get(words.strip("* "), words.removesuffix(PARTLY).strip("* "))}
                result |= {"why": notes[note.rstrip("]")]} if note else {}
                results[trainer][f"{section}: {name}"] = result | {"everywhere": not words.endswith(PARTLY)}
    return results


def table(results: Results) -> str:
    """The page, in Markdown."""
    packages = {name: version(name) for name in ("keras", "tensorflow", "jax", "torch", "tf_keras")}
    everywhere = all(_is_tried_everywhere(results[trainer][str(row)]) for row in rows() for trainer in TRAINERS)
    lines = [_HEAD.format(**packages, epochs=EPOCHS, batches=BATCHES, partly="" if everywhere else _PARTLY)]
    notes = Notes()
    for section in SECTIONS:
        lines += [_SECTIONS[section], _line("", *TRAINERS), _line(*["---"] * (1 + len(TRAINERS)))]
        lines += [_line(row.name, *cells(row, results, notes)) for row in rows() if row.section == section]
        lines.append("")
    return "\n".join([*lines, "## Notes", "", *notes.lines(), ""])


def cells(row: Row, results: Results, notes: Notes) -> Iterator[str]:
    """What became of a row, for each trainer."""
    for trainer in TRAINERS:
        result = results[trainer][str(row)]
        verdict = str(_SAID.get(result["verdict"], result["verdict"])) + (
            "" if _is_tried_everywhere(result) else PARTLY
        )
        yield f"{verdict} {notes.reference(brief(result['why']))}" if result.get("why") else verdict


def _is_tried_everywhere(result: dict[str, Any]) -> bool:
    return result["verdict"] != "equal" or bool(result.get("everywhere"))


def brief(message: str) -> str:
    """A message in one line, without what differs from run to run, and not too long."""
    plain = re.sub(r"/\S*/(\S+)", r"\1", " ".join(message.split()))
    plain = re.sub(r" file: \S+", "", plain)
    plain = plain if len(plain) <= _LONGEST else plain[:_LONGEST].rsplit(" ", 1)[0] + " ..."
    return re.sub(r"([<>|*`])", r"\\\1", plain)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    if sys.argv[1:]:
        merged = published(PAGE.read_text())
        for trainer, found in by_trainer("".join(Path(name).read_text() for name in sys.argv[1:])).items():
            merged[trainer] |= found
        PAGE.write_text(table(merged))
    else:
        print(table(run_all(everywhere=True)), end="")
