"""Writes the table of what round-trips: ``python -m tests.adapters.jax.table > docs/jax_coverage.md``."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import optax

from tests.adapters.jax.optimizers import NOT_OPTIMIZERS, check, names, summary

_HEAD = """# Every optimizer of Optax {version}

Every public function and class of `optax` and `optax.contrib` that makes a transformation of gradients: one was made and used for two steps. Its
state and the parameters were saved with `milepost.Checkpoint`, and restored into a new state of another one for different parameters. After
that, both trees were equal, bit for bit, as were the results of one more step of each, and `assert_consumed()` passed. The names are those of the
values in the checkpoint, below the name of the state. If a value belongs to a parameter, the name of the parameter is part of its name and is
left out here.

Written by `python -m tests.adapters.jax.table`; a test compares it with what the optimizers do.

| optimizer | values | names |
| --- | --- | --- |
"""


def table(results: Mapping[str, list[str]]) -> str:
    """The page, in Markdown, from the keys of each optimizer."""
    lines = [
        f"| `{name}` | {len(results[name])} | {', '.join(f'`{each}`' for each in summary(results[name])) or 'no state'} |"
        for name in names()
    ]
    others = "; ".join(f"`{name}`: {reason}" for name, reason in sorted(NOT_OPTIMIZERS.items()))
    return _HEAD.format(version=optax.__version__) + "\n".join(lines) + f"\n\nNot in the table: {others}.\n"


def run_all() -> dict[str, list[str]]:
    """The keys of each optimizer; one that does not work raises."""
    with tempfile.TemporaryDirectory() as directory:
        return {name: check(name, Path(directory, name)) for name in names()}


if __name__ == "__main__":
    print(table(run_all()), end="")
