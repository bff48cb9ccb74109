"""Tries set-ups, and prints a line of JSON for each: ``python -m tests.zoo_trainers.results [--brief] [PART OF A NAME ...]``."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from typing import Any

from tests.zoo_trainers.verdicts import Row, verdict

TRAINERS = {"Lightning": "lightning.pytorch", "Loops with `DataPosition`": "accelerate"}
"""The sections of the table, each with the module that it needs."""


def rows(trainer: str) -> dict[str, Row]:
    """The set-ups of a section."""
    if trainer == "Lightning":
        from tests.zoo_trainers import lightning as module
    else:
        from tests.zoo_trainers import loops as module  # type: ignore[no-redef]
    return module.SETUPS


def installed() -> list[str]:
    """The sections that can be tried here."""
    return [trainer for trainer, module in TRAINERS.items() if importlib.util.find_spec(module.partition(".")[0])]


def tried(*parts: str, brief: bool = False) -> Iterator[dict[str, Any]]:
    """The results of all set-ups whose names have one of these parts."""
    for trainer in installed():
        for name, row in rows(trainer).items():
            if not parts or any(part in f"{trainer}: {name}" for part in parts):
                yield {"trainer": trainer, "row": name, **verdict(row, brief=brief), "brief": brief}


if __name__ == "__main__":
    names = [each for each in sys.argv[1:] if each != "--brief"]
    for result in tried(*names, brief="--brief" in sys.argv):
        print(json.dumps(result), flush=True)
