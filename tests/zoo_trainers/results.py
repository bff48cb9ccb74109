"""Tries set-ups, and prints a line of JSON for each: ``python -m tests.zoo_trainers.results [--whole] [PART OF A NAME ...]``."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from typing import Any

from tests.zoo_trainers.verdicts import BRIEF, WHOLE, Plan, Row, verdict

TRAINERS = {
    "Lightning": ("lightning", "lightning", "SETUPS"),
    "Hugging Face `Trainer`": ("transformers", "transformers", "SETUPS"),
    "Accelerate": ("accelerate", "loops", "ACCELERATE"),
    "ignite": ("ignite", "ignite", "SETUPS"),
    "Loops with `DataPosition`": ("torch", "loops", "PLAIN"),
}
"""The sections of the table, each with the package that it needs, the module here, and its name for the set-ups."""


def rows(trainer: str) -> dict[str, Row]:
    """The set-ups of a section."""
    _, module, name = TRAINERS[trainer]
    found: dict[str, Row] = getattr(importlib.import_module(f"tests.zoo_trainers.{module}"), name)
    return found


def installed() -> list[str]:
    """The sections that can be tried here."""
    return [trainer for trainer, (package, _, _) in TRAINERS.items() if importlib.util.find_spec(package)]


def tried(*parts: str, plans: tuple[Plan, ...] = BRIEF) -> Iterator[dict[str, Any]]:
    """The results of all set-ups whose names have one of these parts."""
    for trainer in installed():
        for name, row in rows(trainer).items():
            if not parts or any(part in f"{trainer}: {name}" for part in parts):
                yield {"trainer": trainer, "row": name, **verdict(row, plans)}


if __name__ == "__main__":
    names = [each for each in sys.argv[1:] if each != "--whole"]
    for result in tried(*names, plans=WHOLE if "--whole" in sys.argv else BRIEF):
        print(json.dumps(result), flush=True)
