"""Writes the table of what round-trips: ``python -m tests.zoo_torch.table > docs/torch_coverage.md``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.notes import Notes
from tests.zoo_torch.checks_modules import REFUSED
from tests.zoo_torch.namespaces import BASES, RECIPES, cases, run_all, stages
from tests.zoo_torch.recipe import torch

_MOST = 6
_HEAD = """# Every built-in object of PyTorch {version}

Two objects of each class were made from different seeds and used. One was saved with `milepost.Checkpoint` and restored into the other. A
number is the number of restored values, with a nested state counted once. All values were compared bit for bit, as were the following
results: outputs of modules in training and in evaluation, losses and state of three further steps of an optimizer, and the settings of a
scheduler in sixteen further steps. `assert_consumed()` passed, and the report listed nothing as missing or unexpected.

- **0**: The object has no values.
- **—**: There is nothing to test.
- A number in brackets refers to the notes below the tables.

Written by `python -m tests.zoo_torch.table`; a test compares it with what the objects do.
"""
_ABOUT = {
    "nn": """Restored into a module that was *made* and used, in its own memory; into one on the *meta* device, which gets
memory by that; and *late*, where the module is added to its parent after the restore, or, if it is lazy, first called
after it.""",
    "nn.utils": "A linear layer that was changed by these.",
    "optim.swa_utils": "",
    "optim": """Saved after three steps, and restored into a *new* optimizer that has no state yet, one that has *trained*,
and one that is made after the restore (*late*). Saved and restored *before the first step*. With parameters of
*bfloat16*. Numbers include the parameters and hyperparameters.""",
    "optim.lr_scheduler": """Saved after six steps, and restored into a *new* scheduler, one that was *used*, and one that is
made after the restore of its optimizer (*late*). With learning rates that are tensors, which stay the same objects.
Numbers include the parameters and hyperparameters of the optimizer.""",
}


def version() -> str:
    """The version of PyTorch, without what it was built for."""
    found: str = torch.__version__.partition("+")[0]
    return found


def table(results: dict[str, dict[str, Any]]) -> str:
    """The page, in Markdown."""
    lines, notes = [_HEAD.format(version=version())], Notes()
    for namespace in RECIPES:
        named = namespace != "optim.lr_scheduler"
        heads = ["object", *stages(namespace), *(["names"] if named else [])]
        lines += [f"## torch.{namespace}", "", *([_ABOUT[namespace], ""] if _ABOUT[namespace] else [])]
        lines += [_row(*heads), _row(*["---"] * len(heads))]
        for case in cases():
            if case.namespace == namespace:
                variant = f", {case.recipe.variant}" if case.recipe.variant else ""
                result = results[str(case)]
                cells = [*_cells(result, case.stages, notes), *([_names(result.get("names", []))] if named else [])]
                lines.append(_row(f"`{case.name}`{variant}", *cells))
        lines.append("")
    bases = "; ".join(f"`{name}`, {reason}" for name, reason in BASES.items())
    aside = "`torch.nn.quantized` and its like, which are old names of parts of `torch.ao`"
    return "\n".join([*lines, f"Not in the tables: {bases}; {aside}.", "", "## Notes", "", *notes.lines(), ""])


def _cells(result: dict[str, Any], tried: tuple[str, ...], notes: Notes) -> Iterator[str]:
    for stage in tried:
        outcome = result[stage]
        if isinstance(outcome, str) and outcome.startswith(REFUSED):
            yield notes.reference(re.sub(r"([<>|*])", r"\\\1", outcome.removeprefix(REFUSED)))
        else:
            yield "**fails**" if isinstance(outcome, str) and len(outcome) > 1 else str(outcome)


def _names(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:_MOST])
    return f"{shown} and {len(names) - _MOST} more" if len(names) > _MOST else shown


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(table(run_all()), end="")
