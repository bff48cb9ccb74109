"""Writes the table of what round-trips: ``python -m tests.zoo.table > docs/keras_coverage.md``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.notes import Notes
from tests.zoo.checks import STAGES
from tests.zoo.namespaces import NAMESPACES, Case, cases, classes
from tests.zoo.recipe import keras
from tests.zoo.results import BACKENDS, Results, run_all

_LONGEST = 180
_HEAD = """# Every built-in object of Keras {version}

Every public class of `keras.layers`, `keras.optimizers`, `keras.optimizers.schedules` and `keras.metrics`, on every backend: an object was
trained, saved with `milepost.Checkpoint`, and restored into a new object, which was either *built*, with a different state, or not built yet
(*deferred*). A number is the number of restored values. All values were compared bit for bit, as were the next outputs or, for optimizers, the
losses of four further steps. `assert_consumed()` passed, and the report listed nothing as missing or unexpected. Layers were tested alone, and
unbuilt inside a model. Numbers for optimizers include the weights and the loss of the model that they train.

- **0**: The object has no state. Nothing of the other layers in its model was lost.
- **—**: Restoration cannot be deferred, because the object must be changed before the values fit, as by `quantize()`.
- A number in brackets refers to the notes below the tables.

Written by `python -m tests.zoo.table`; a test compares it with what the objects do.
"""


def table(results: Results) -> str:
    """The page, in Markdown."""
    lines = [_HEAD.format(version=keras.__version__)]
    notes = Notes()
    for namespace in NAMESPACES:
        aliases = classes(namespace)
        lines += [f"## keras.{namespace}", "", _row("class", *_columns()), _row(*["---"] * 7)]
        for case in cases():
            if case.namespace == namespace:
                names = [f"`{name}`" for name in (case.name, *(aliases[case.name] if not case.recipe.variant else ()))]
                variant = f", {case.recipe.variant}" if case.recipe.variant else ""
                lines.append(_row(", ".join(names) + variant, *_cells(case, results, notes)))
        lines.append("")
    return "\n".join([*lines, "## Notes", "", *notes.lines(), ""])


def _columns() -> Iterator[str]:
    for backend in BACKENDS:
        for stage in STAGES:
            yield f"{backend}, {stage}"


def _cells(case: Case, results: Results, notes: Notes) -> Iterator[str]:
    for backend in BACKENDS:
        result = results[backend][str(case)]
        for stage in STAGES:
            if case.recipe.requires:
                yield notes.reference(f"Tested where {case.recipe.requires} is installed.")
                continue
            if "refused" in result:
                yield notes.reference(f"Not on this backend, by Keras itself: {brief(result['refused'])}")
                continue
            aside = f" {notes.reference(_aside(result))}" if "alone only" in result else ""
            outcome = result[stage]
            yield "**fails**" if isinstance(outcome, str) else f"{'—' if outcome is None else outcome}{aside}"


def _aside(result: dict[str, Any]) -> str:
    return f"Alone only, not in a model: {brief(result['alone only'])}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def brief(message: str) -> str:
    """A message of Keras, without what differs from run to run, and not too long."""
    plain = re.sub(r"\x1b\[[0-9;]*m|\{\{.*?\}\} ?|Exception encountered when calling \S+ ", "", message)
    plain = re.sub(r"_\d+\b", "", plain)
    plain = plain if len(plain) <= _LONGEST else plain[:_LONGEST].rsplit(" ", 1)[0] + " ..."
    return re.sub(r"([<>|*`])", r"\\\1", plain)


if __name__ == "__main__":
    print(table(run_all()), end="")
