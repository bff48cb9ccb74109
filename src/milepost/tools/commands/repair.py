"""`milepost repair`: puts a directory of checkpoints in order."""

from __future__ import annotations

import argparse
import os
from typing import Any, Final

from milepost.errors import MilepostError
from milepost.tools import amounts
from milepost.tools.arguments import CANNOT, DIFFERS, SUCCESS, add_command, add_json, add_recursive
from milepost.tools.inventory import of_other_libraries
from milepost.tools.paths import typed_path
from milepost.tools.remedies import for_command
from milepost.tools.repairing import Repair, Repairs, repairable_below
from milepost.tools.terminal import line, note, print_json, shown

_MOST_LISTED: Final = 3


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
    command.add_argument(
        "--remove-data",
        action="store_true",
        help="remove data without an index, too, which a deletion or a copy has left that was cut short; not while a copy to the directory runs",
    )
    add_recursive(command, "repair what is")
    add_json(command)


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    directories = [options.directory]
    if options.recursive:
        directories += repairable_below(options.directory)
    results: list[dict[str, Any]] = []
    status = SUCCESS
    for directory in directories:
        try:
            repairs = _repaired(directory, options)
        except MilepostError as error:
            if len(directories) == 1:
                raise
            note(f"error: {for_command(error, 'repair')}")
            status = CANNOT
            continue
        if repairs.is_needed and options.dry_run:
            status = status or DIFFERS
        results.append(_result(directory, repairs))
        if not options.json:
            if len(directories) > 1:
                line(f"{shown(directory)}:")
            _print(repairs, is_dry=options.dry_run)
    not_searched = [] if options.recursive else repairable_below(options.directory, levels=1)
    if options.json:
        _print_json(options, results, not_searched)
    else:
        _tell_of_limits(options, directories, not_searched)
    return status


def _repaired(directory: str, options: argparse.Namespace) -> Repairs:
    """What is repaired in a directory, or would be."""
    repair = Repair(directory, "files" if options.quick else "checksums", remove_data=options.remove_data)
    repairs = repair.planned()
    if repairs.is_needed and not options.dry_run:
        repair.carry_out()
    return repairs


def _print_json(options: argparse.Namespace, results: list[dict[str, Any]], not_searched: list[str]) -> None:
    common = {"dry_run": options.dry_run, "not_searched": not_searched}
    if options.recursive:
        needed = any(each["needed"] for each in results)
        print_json({"directory": options.directory, **common, "needed": needed, "directories": results})
    else:
        print_json({**results[0], **common})


def _result(directory: str, repairs: Repairs) -> dict[str, Any]:
    return {
        "directory": directory,
        "needed": repairs.is_needed,
        "state_file": repairs.state_file or None,
        "removed": repairs.removed,
        "unlisted": [_problem(path, error) for path, error in repairs.unlisted.items()],
        "damaged": [_problem(path, error) for path, error in repairs.bad.items()],
        "data_without_index": [{"path": path, "bytes": size} for path, size in repairs.data.items()],
        "latest": repairs.latest,
    }


def _print(repairs: Repairs, *, is_dry: bool) -> None:
    would = "would be " if is_dry else ""
    if repairs.state_file:
        line(f"state file: {would}{shown(repairs.state_file)}")
    for path, problem in repairs.unlisted.items():
        line(f"not listed any more: {shown(os.path.basename(path))}: {shown(problem.problem)}")
    for path in repairs.removed:
        line(f"{would}removed: {shown(path)}")
    for path, problem in repairs.bad.items():
        line(f"damaged, and left as it is: {shown(path)}: {shown(problem.problem)}")
    for path, size in repairs.data.items():
        line(f"data without an index, and left as it is: {shown(path)}, {amounts.size(size)}")
    if not repairs.is_needed:
        line("nothing is to be repaired")
    elif repairs.latest is not None:
        line(f"latest checkpoint: {shown(repairs.latest)}")
    if repairs.data:
        note("--remove-data removes data without an index")


def _tell_of_limits(options: argparse.Namespace, directories: list[str], not_searched: list[str]) -> None:
    """Says what the command did not look at, although 'milepost ls' and 'milepost verify' do."""
    if not_searched:
        count = amounts.plural(len(not_searched), "directory", "directories")
        listed = ", ".join(map(shown, not_searched[:_MOST_LISTED]))
        note(
            f"not looked into: {count} further down that may have checkpoints, such as {listed}; -R repairs these, too"
        )
    if options.quick:
        note("no checksums were compared, because of --quick")
    others = [path for directory in directories for path in of_other_libraries(directory)]
    if others:
        count = amounts.plural(len(others), "file or directory", "files and directories")
        note(f"not looked at: {count} of other libraries, such as {shown(others[0])}; 'milepost verify' reads them")


def _problem(path: str, error: MilepostError) -> dict[str, str]:
    return {"path": path, "problem": str(error)}
