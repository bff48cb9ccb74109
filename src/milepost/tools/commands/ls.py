"""`milepost ls`: the checkpoints of a directory."""

from __future__ import annotations

import argparse
import os
from typing import Any

from milepost.errors import StorageError, without_remedy
from milepost.graph.description import metrics_text, moment
from milepost.tools import amounts
from milepost.tools.arguments import CANNOT, DIFFERS, SUCCESS, add_command, add_json, add_recursive, best
from milepost.tools.files import first_names
from milepost.tools.fitting import Column
from milepost.tools.inventory import (
    CheckpointFacts,
    FoundCheckpoint,
    Inventory,
    age_of,
    facts_of,
    inventory_of,
    not_searched_note,
)
from milepost.tools.listing_order import SORTED_BY, Row, best_of, in_order
from milepost.tools.paths import typed_path
from milepost.tools.remedies import for_command
from milepost.tools.terminal import note, print_json, shown, table


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "ls",
        run,
        "list the checkpoints of a directory: steps, sizes, ages, metrics, files, which are complete, latest and pinned",
        [
            "milepost ls ./tf_ckpts",
            "milepost ls ./tf_ckpts --best loss:min --sort loss",
            "milepost ls ./runs -R --sort size --reverse",
            "milepost ls ./tf_ckpts --json | jq '.checkpoints[].step'",
        ],
        {0: "none is known to be damaged or missing", 1: "one is damaged or missing, or the state file is malformed"},
        "No values are read. A checkpoint is 'complete' if its index is undamaged, and each data file is there and as long as the index says; a "
        "file of another library, if its header can be read and the file is as long as that says. Changed bytes of values are not noticed: "
        "'milepost verify' compares all checksums.",
    )
    command.add_argument(
        "path",
        metavar="PATH",
        nargs="?",
        type=typed_path,
        default=".",
        help="a directory, by default the current one; or one checkpoint, SavedModel or file, of which 'milepost show' lists the tensors",
    )
    add_recursive(command, "list the checkpoints")
    command.add_argument(
        "--sort",
        metavar="KEY",
        default="name",
        help=f"sort by {', '.join(SORTED_BY)}, or by a metric of this name, the smallest first; those without a value come last",
    )
    command.add_argument("-r", "--reverse", action="store_true", help="sort the largest first")
    command.add_argument(
        "--best",
        type=best,
        action="append",
        default=[],
        metavar="METRIC:MODE[:N]",
        help="mark the best N of each series, by default 1, by a metric that was saved with them; MODE is min or max",
    )
    add_json(command)


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    inventory = inventory_of(options.path, levels=None if options.recursive else 1, with_data=True)
    rows = [(checkpoint, facts_of(checkpoint)) for checkpoint in inventory.places]
    best_marks = best_of(rows, options.best, options.path)
    checkpoints_with_facts = in_order(rows, options.sort, options.path, backwards=options.reverse)
    is_bad = bool(inventory.problems) or any(
        facts.state in ("damaged", "missing") for _, facts in checkpoints_with_facts
    )
    if options.json:
        print_json(_json(options.path, inventory, checkpoints_with_facts, best_marks))
    else:
        _print(options.path, inventory, checkpoints_with_facts, best_marks)
    if is_bad:
        return DIFFERS
    return CANNOT if any(isinstance(facts.problem, StorageError) for _, facts in checkpoints_with_facts) else SUCCESS


def _print(
    path: str, inventory: Inventory, checkpoints_with_facts: list[Row], best_marks: dict[str, list[str]]
) -> None:
    rows = [
        _cells(path, checkpoint, facts, best_marks.get(checkpoint.path, []))
        for checkpoint, facts in checkpoints_with_facts
    ]
    columns = [
        Column("STEP", right=True),
        Column("SIZE", right=True, spare=2),
        Column("AGE", right=True, spare=3),
        Column("TENSORS", right=True, spare=4),
        Column("STATE"),
        Column("MARKS", style="bold", folds=True),
        Column("METRICS", folds=True, spare=1),
        Column("FILES", folds=True, spare=5),
        Column("NAME", style="cyan", folds=True),
    ]
    used = [
        position
        for position, column in enumerate(columns)
        if any(row[position] for row in rows) or column.title == "NAME"
    ]
    table([columns[position] for position in used], [[row[position] for position in used] for row in rows])
    for problem in inventory.problems:
        note(f"warning: {for_command(problem, 'ls')}")
    _print_problems(checkpoints_with_facts)
    if text := not_searched_note(inventory):
        note(text)


def _print_problems(checkpoints_with_facts: list[Row]) -> None:
    """Says what is wrong with checkpoints. What can be done about several is said once."""
    remedies = set()
    for checkpoint, facts in checkpoints_with_facts:
        if facts.problem is not None:
            note(f"{facts.state}: {shown(checkpoint.path)}: {without_remedy(facts.problem)}")
            remedy = for_command(facts.problem, "ls").remedy
            if remedy and remedy not in remedies:
                note(f"  remedy: {remedy}")
                remedies.add(remedy)


def _cells(directory: str, checkpoint: FoundCheckpoint, facts: CheckpointFacts, best_marks: list[str]) -> list[str]:
    seconds = age_of(checkpoint, facts)
    known = (
        *(("latest", checkpoint.is_latest), ("pinned", checkpoint.is_pinned), ("not listed", checkpoint.is_left_out)),
        ("not finite", bool(facts.nonfinite)),
    )
    marks = [*(name for name, is_set in known if is_set), *map(shown, best_marks)]
    return [
        "" if checkpoint.step is None else str(checkpoint.step),
        amounts.size(facts.size) if facts.size else "",
        "" if seconds is None else amounts.age(seconds),
        "" if facts.tensors is None else f"{facts.tensors:,}",
        facts.state,
        ", ".join(marks),
        metrics_text(facts.metrics),
        ", ".join(map(shown, first_names(facts.files))),
        shown(_name(directory, checkpoint.path)),
    ]


def _name(directory: str, path: str) -> str:
    """The path of a checkpoint from its directory, or the whole path of one that is elsewhere."""
    above, below = os.path.normpath(directory), os.path.normpath(path)
    if above == below:
        return os.path.basename(below)
    inside = below.removeprefix(os.path.join(above, ""))
    return inside if inside != below or (above == os.curdir and not os.path.isabs(below)) else path


def _json(
    path: str, inventory: Inventory, checkpoints_with_facts: list[Row], best_marks: dict[str, list[str]]
) -> dict[str, Any]:
    rows = []
    for checkpoint, facts in checkpoints_with_facts:
        saved = facts.modified if checkpoint.saved is None else checkpoint.saved
        rows.append(
            {
                "path": checkpoint.path,
                "step": checkpoint.step,
                "bytes": facts.size,
                "saved": None if saved is None else moment(saved),
                "age_seconds": age_of(checkpoint, facts),
                "tensors": facts.tensors,
                "state": facts.state,
                "latest": checkpoint.is_latest,
                "pinned": checkpoint.is_pinned,
                "listed": checkpoint.is_listed,
                "metrics": facts.metrics or None,
                "best": best_marks.get(checkpoint.path, []),
                "nonfinite": list(facts.nonfinite),
                "files": facts.files,
                "problem": None if facts.problem is None else str(facts.problem),
            }
        )
    return {
        "path": path,
        "state_file_problem": "\n".join(map(str, inventory.problems)) or None,
        "checkpoints": rows,
        "not_searched": inventory.not_searched,
    }
