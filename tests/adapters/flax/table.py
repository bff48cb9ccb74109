"""Writes the table of what round-trips: ``python -m tests.adapters.flax.table > docs/flax_coverage.md``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.adapters.flax.zoo import BASES, cases, check, version

_HEAD = """# Every built-in object of Flax NNX {version}

Every public class of `flax.nnx`, `flax.nnx.metrics` and `flax.nnx.bridge` that can have state: two objects were made from different seeds and
used. One was saved with `milepost.Checkpoint` and restored into the other. After that, all values and the next outputs of both were equal, bit
for bit, and `assert_consumed()` passed. The names are those of the values in the checkpoint, below the name of the object.

Written by `python -m tests.adapters.flax.table`; a test compares it with what the objects do.

| class | values | names |
| --- | --- | --- |
"""


def table(results: Mapping[str, list[str]]) -> str:
    """The page, in Markdown, from the keys of each case."""
    lines = []
    for case in cases():
        names = results[str(case)]
        variant = f", {case.recipe.variant}" if case.recipe.variant else ""
        lines.append(f"| `{case.name}`{variant} | {len(names)} | {', '.join(f'`{name}`' for name in names)} |")
    bases = "; ".join(f"`{name}`: {reason}" for name, reason in sorted(BASES.items()))
    return _HEAD.format(version=version()) + "\n".join(lines) + f"\n\nNot in the table: {bases}.\n"


def run_all() -> dict[str, list[str]]:
    """The keys of each case that works; others raise."""
    with tempfile.TemporaryDirectory() as directory:
        return {str(case): check(case.recipe, Path(directory, str(number))) for number, case in enumerate(cases())}


if __name__ == "__main__":
    print(table(run_all()), end="")
