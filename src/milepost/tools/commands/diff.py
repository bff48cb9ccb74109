"""`milepost diff`: what differs between two checkpoints."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from typing import Any, Final

from milepost.checkpoint.short_names import short_name
from milepost.collector import collection_paused
from milepost.tools import amounts
from milepost.tools.arguments import DIFFERS, FILES, SUCCESS, add_checkpoint, add_command, add_json
from milepost.tools.comparison import KINDS, Change, Comparison, Kind
from milepost.tools.fitting import Column
from milepost.tools.named import open_named
from milepost.tools.statistics import Difference
from milepost.tools.terminal import line, named, print_json, progress, table

_SIGNS: Final[dict[Kind, str]] = {"removed": "-", "added": "+", "reshaped": "!", "retyped": "!", "changed": "~"}


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "diff",
        run,
        "compare two checkpoints: which tensors were added, removed, reshaped or changed, and by how much",
        [
            "milepost diff ./tf_ckpts/ckpt-9 ./tf_ckpts/ckpt-10",
            "milepost diff --names-only model.safetensors ./tf_ckpts",
        ],
        {0: "they are the same", 1: "they differ"},
        "All values are read that both have in one shape, which takes as long as reading both checkpoints; --names-only reads none. An element "
        "that is NaN in both is equal. Of values that differ, 'max' is the largest absolute difference of two elements, and 'relative' the norm (the square root of the sum of "
        "squares) of the difference divided by the norm of the values of A.",
    )
    add_checkpoint(command, "a", FILES)
    add_checkpoint(command, "b", "as A")
    command.add_argument(
        "--names-only", action="store_true", help="compare names, shapes and element types only; no values are read"
    )
    command.add_argument(
        "--trust-checksums",
        action="store_true",
        help="take tensors for equal, without reading them, if their types, sizes and CRC-32C are; this is fast, but no proof",
    )
    add_json(command)


@collection_paused()
def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    with open_named(options.a) as first, open_named(options.b) as second:
        comparison = Comparison(first, second)
        changes = comparison.structure
        if not options.names_only:
            pairs = comparison.to_read(trust_checksums=options.trust_checksums)
            with progress("compare", second.prefix, sum(old.size + new.size for old, new in pairs)):
                by_value = list(comparison.changes(pairs))
            measured = {change.key for change in by_value}
            changes = [*(each for each in changes if each.key not in measured), *by_value]
        changes = sorted(changes, key=lambda change: (KINDS.index(change.kind), change.key))
        counts = Counter(change.kind for change in changes)
        if options.json:
            summary: dict[str, Any] = {kind: counts[kind] for kind in KINDS}
            summary["unchanged"] = len(comparison.pairs) - sum(
                counts[kind] for kind in ("reshaped", "retyped", "changed")
            )
            print_json(
                {
                    "a": first.prefix,
                    "b": second.prefix,
                    "values_compared": not options.names_only,
                    "counts": summary,
                    "changes": [change.to_dict() for change in changes],
                }
            )
        else:
            _print(changes, comparison, counts, names_only=options.names_only)
    return DIFFERS if changes else SUCCESS


def _print(changes: list[Change], comparison: Comparison, counts: Counter[Kind], *, names_only: bool) -> None:
    if changes:
        columns = [
            Column(""),
            Column("TYPE", folds=True),
            Column("DIFFERENCE", folds=True),
            Column("KEY", style="cyan", folds=True),
        ]
        used = (
            columns
            if any(change.difference for change in changes)
            else [each for each in columns if each.title != "DIFFERENCE"]
        )
        cells = [[_SIGNS[each.kind], _specs(each), _amount(each), named(short_name(each.key))] for each in changes]
        table(used, cells if used is columns else [[sign, spec, key] for sign, spec, _, key in cells])
    same = len(comparison.pairs) - sum(counts[kind] for kind in ("reshaped", "retyped", "changed"))
    parts = [f"{counts[kind]:,} {kind}" for kind in KINDS if counts[kind]]
    compared = "of the same name, shape and type" if names_only else "the same"
    line(", ".join([*parts, f"{same:,} {compared}"]))


def _specs(change: Change) -> str:
    old, new = change.before, change.after
    if old is not None and new is not None and (old.dtype is not new.dtype or old.shape != new.shape):
        return f"{old.spec} -> {new.spec}"
    row = old or new
    return "" if row is None else row.spec


def _amount(change: Change) -> str:
    found: Difference | None = change.difference
    if found is None:
        return ""
    if not found.unequal:
        return "values equal"
    relative = "" if math.isinf(found.relative) else f", relative {amounts.number(found.relative)}"
    elements = f", {found.unequal:,} of {found.count:,}" if found.count > 1 else ""
    return f"max {amounts.number(found.largest)}{relative}{elements}"
