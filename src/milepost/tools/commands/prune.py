"""`milepost prune`: deletes the checkpoints of a series that no rule keeps."""

from __future__ import annotations

import argparse
import os
from typing import Any

from milepost.errors import MilepostError
from milepost.retention import EveryHours, EverySteps, Policy, Recent
from milepost.series.removal import remove_for_good
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tools import amounts
from milepost.tools.arguments import SUCCESS, add_command, add_json, best, hours, positive
from milepost.tools.fitting import Column
from milepost.tools.paths import typed_path
from milepost.tools.pruning import Pruning, planned
from milepost.tools.terminal import line, note, print_json, shown, table


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "prune",
        run,
        "show which checkpoints of a series no rule keeps, and delete them with --delete",
        [
            "milepost prune ./tf_ckpts --keep 3",
            "milepost prune ./tf_ckpts --keep 3 --best loss:min:2 --every-steps 10000 --delete",
        ],
        {0: "the list is printed, or the checkpoints are deleted"},
        "A checkpoint is kept if any rule keeps it. The newest whole checkpoint, the newest that is not marked as not finite, and pinned ones are always kept. Checkpoints that are not whole "
        "count for no rule, and are never deleted. Without --delete nothing changes.",
    )
    command.add_argument("directory", metavar="DIRECTORY", type=typed_path, help="the directory of the checkpoints")
    command.add_argument(
        "--keep",
        type=positive,
        metavar="N",
        help="keep the newest N; by default 1, if there is another rule",
    )
    command.add_argument(
        "--best",
        type=best,
        action="append",
        default=[],
        metavar="METRIC:MODE[:N]",
        help="keep the best N, by default 1, by a metric that was saved with them; MODE is min or max",
    )
    command.add_argument(
        "--every-steps", type=positive, metavar="N", help="keep those whose numbers are multiples of N"
    )
    command.add_argument("--every-hours", type=hours, metavar="H", help="keep one for each H hours")
    command.add_argument("--recent", type=hours, metavar="H", help="keep those of the last H hours before the newest")
    command.add_argument("--name", help="the name of the series, such as ckpt, if the directory has several")
    command.add_argument("--delete", action="store_true", help="delete; without it, only say what would be deleted")
    command.add_argument(
        "-n", "--dry-run", action="store_true", help="only say what would be deleted, also with --delete"
    )
    add_json(command)


def _policy(options: argparse.Namespace) -> Policy | None:
    """What to keep beside the newest and the best."""
    policies: list[Policy] = []
    if options.every_steps is not None:
        policies.append(EverySteps(options.every_steps))
    if options.every_hours is not None:
        policies.append(EveryHours(options.every_hours))
    if options.recent is not None:
        policies.append(Recent(options.recent))
    joined = None
    for each in policies:
        joined = each if joined is None else joined | each
    return joined


def _said(options: argparse.Namespace) -> str:
    """The options that say what to keep beside the newest."""
    words = [f"--best {each.by}:{each.mode}{f':{each.n}' if each.n > 1 else ''}" for each in options.best]
    values = {name: getattr(options, name) for name in ("every_steps", "every_hours", "recent")}
    words += [f"--{name.replace('_', '-')} {value:.15g}" for name, value in values.items() if value is not None]
    return " ".join(words)


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    policy = _policy(options)
    if options.keep is None and policy is None and not options.best:
        options.usage_error("say which checkpoints to keep, for example --keep 3")
    directory = options.directory.rstrip(os.sep) or os.sep
    pruning = planned(directory, options.name, options.keep, policy, options.best, _said(options))
    is_dry = options.dry_run or not options.delete
    if not is_dry:
        for path in pruning.deleted:
            try:
                remove_for_good(DEFAULT_STORAGE, path, directory)
            except MilepostError:
                _tell_of_those_before(path, pruning)
                raise
    freed = sum(pruning.sizes[path] for path in pruning.deleted)
    if options.json:
        print_json(
            {
                "directory": directory,
                "dry_run": is_dry,
                "bytes_freed": freed,
                "kept": [_row(path, pruning) | {"reasons": list(reasons)} for path, reasons in pruning.kept.items()],
                "deleted": [
                    _row(path, pruning) | {"reasons": list(reasons)} for path, reasons in pruning.deleted.items()
                ],
                "not_whole": [_row(path, pruning) | {"problem": str(error)} for path, error in pruning.bad.items()],
            }
        )
        return SUCCESS
    word = "delete" if is_dry else "deleted"
    rows = [[word, shown(os.path.basename(path)), shown("; ".join(why))] for path, why in pruning.deleted.items()]
    rows += [["keep", shown(os.path.basename(path)), shown("; ".join(why))] for path, why in pruning.kept.items()]
    rows += [
        ["keep", shown(os.path.basename(path)), f"not whole: {shown(why.problem)}"] for path, why in pruning.bad.items()
    ]
    if rows:
        table([Column(""), Column("NAME", style="cyan", folds=True), Column("WHY", folds=True)], rows)
    if not pruning.deleted:
        line("nothing to delete" if pruning.kept else "nothing to delete: no checkpoint here is whole")
        return SUCCESS
    size = amounts.size(freed)
    counted = amounts.plural(len(pruning.deleted), "checkpoint")
    line(f"{counted} would be deleted, {size}; pass --delete to do it" if is_dry else f"{counted} deleted, {size}")
    return SUCCESS


def _tell_of_those_before(failed: str, pruning: Pruning) -> None:
    """Says which checkpoints were deleted before the one that cannot be."""
    paths = list(pruning.deleted)
    for path in paths[: paths.index(failed)]:
        note(f"deleted: {shown(path)}, {amounts.size(pruning.sizes[path])}")


def _row(path: str, pruning: Pruning) -> dict[str, Any]:
    return {"path": path, "bytes": pruning.sizes[path]}
