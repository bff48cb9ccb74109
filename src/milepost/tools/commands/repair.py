"""`milepost repair`: puts a directory of checkpoints in order."""

from __future__ import annotations

import argparse
import os
from typing import Any

from milepost.errors import MilepostError, without_remedy
from milepost.tools.arguments import DIFFERS, SUCCESS, add_command, add_json
from milepost.tools.paths import typed_path
from milepost.tools.repairing import Repair, Repairs
from milepost.tools.terminal import line, note, print_json, shown


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "repair",
        run,
        "put a directory in order: its state file, unfinished deletions, and what killed saves have left",
        ["milepost repair ./tf_ckpts --dry-run", "milepost repair ./tf_ckpts"],
        {0: "nothing is to be repaired, or it has been", 1: "with --dry-run: something is to be repaired"},
        "Run it while no program saves to the directory. A checkpoint is never deleted, unless a program had begun to delete it; damaged ones "
        "leave the state file, and their files stay. A state file that is made anew lists every whole numbered checkpoint of the directory, and a "
        "manager that goes on with the directory deletes those that its rules do not keep.",
    )
    command.add_argument("directory", metavar="DIRECTORY", type=typed_path, help="the directory of the checkpoints")
    command.add_argument("-n", "--dry-run", action="store_true", help="say what would be done, and do nothing")
    command.add_argument(
        "--quick",
        action="store_true",
        help="trust checkpoints whose index is undamaged and whose files are long enough, instead of comparing all checksums",
    )
    add_json(command)


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    repair = Repair(options.directory, "files" if options.quick else "checksums")
    repairs = repair.planned()
    if repairs.is_needed and not options.dry_run:
        repair.carry_out()
    if options.json:
        print_json(
            {
                "directory": options.directory,
                "dry_run": options.dry_run,
                "needed": repairs.is_needed,
                "state_file": repairs.state_file or None,
                "removed": repairs.removed,
                "unlisted": [_problem(path, error) for path, error in repairs.unlisted.items()],
                "damaged": [_problem(path, error) for path, error in repairs.bad.items()],
                "latest": repairs.latest,
            }
        )
    else:
        _print(repairs, is_dry=options.dry_run)
    return DIFFERS if repairs.is_needed and options.dry_run else SUCCESS


def _print(repairs: Repairs, *, is_dry: bool) -> None:
    would = "would be " if is_dry else ""
    if repairs.state_file:
        line(f"state file: {would}{shown(repairs.state_file)}")
    for path, problem in repairs.unlisted.items():
        line(f"not listed any more: {shown(os.path.basename(path))}: {shown(problem.problem)}")
    for path in repairs.removed:
        line(f"{would}removed: {shown(path)}")
    for path, problem in repairs.bad.items():
        note(f"damaged, and left as it is: {shown(path)}: {without_remedy(problem)}")
    if not repairs.is_needed:
        line("nothing is to be repaired")
    elif repairs.latest is not None:
        line(f"latest checkpoint: {shown(repairs.latest)}")


def _problem(path: str, error: MilepostError) -> dict[str, str]:
    return {"path": path, "problem": str(error)}
