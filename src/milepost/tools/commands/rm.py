"""`milepost rm`: removes checkpoints, damaged ones too, with their entries in the state file."""

from __future__ import annotations

import argparse
from typing import Any

from milepost.tools import amounts
from milepost.tools.arguments import SUCCESS, add_command, add_json
from milepost.tools.prefixes import add_prefixes, prefixes_of
from milepost.tools.removing import Removal, removals_of, remove_all
from milepost.tools.terminal import line, note, print_json, shown


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "rm",
        run,
        "remove checkpoints, damaged ones too, with their entries in the state file",
        ["milepost rm ./tf_ckpts/ckpt-10", "milepost rm ./tf_ckpts/ckpt-1*.index --dry-run"],
        {0: "the checkpoints are removed"},
        "It removes as CheckpointManager.delete does: a kill at any moment leaves nothing that the next manager does not complete, and no free "
        "block is needed on the disk. If one of the checkpoints is refused, such as one that is pinned or that a program saves now, none is "
        "removed. Which programs have files of them open is said, where the system tells it.",
    )
    add_prefixes(command)
    command.add_argument("--pinned", action="store_true", help="remove pinned checkpoints, too")
    command.add_argument("-n", "--dry-run", action="store_true", help="say what would be removed, and do nothing")
    add_json(command)


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    removals = removals_of(prefixes_of(options))
    latest = remove_all(removals, with_pins=options.pinned, is_dry=options.dry_run)
    if options.json:
        print_json(
            {
                "dry_run": options.dry_run,
                "bytes_freed": sum(each.size for each in removals),
                "removed": [_row(each) for each in removals],
                "latest": latest,
            }
        )
        return SUCCESS
    for each in removals:
        _tell_of_use(each, is_dry=options.dry_run)
        line(f"{'would be removed' if options.dry_run else 'removed'}: {shown(each.path)}, {amounts.size(each.size)}")
    for directory, path in latest.items():
        if path is not None:
            line(f"latest checkpoint: {shown(path)}")
        elif any(each.is_listed for each in removals if each.directory == directory):
            would = "would be" if options.dry_run else "is"
            note(f"no checkpoint {would} listed in {shown(directory or '.')} any more: a run there starts anew")
    return SUCCESS


def _tell_of_use(removal: Removal, *, is_dry: bool) -> None:
    """Says which programs use a checkpoint. Nothing is taken from them."""
    for process in removal.readers:
        will = "would read" if is_dry else "reads"
        note(
            f"in use: process {process.number} ({shown(process.name)}) has {shown(removal.path)} open; "
            f"it {will} on, and its bytes are free when it closes the files"
        )
    if removal.is_run_alive and removal.is_listed:
        note(
            f"a program saves to the directory of {shown(removal.path)} now; its next save drops the entry from its list"
        )


def _row(removal: Removal) -> dict[str, Any]:
    return {
        "path": removal.path,
        "bytes": removal.size,
        "pinned": removal.is_pinned,
        "listed": removal.is_listed,
        "open_in": [process.number for process in removal.readers],
        "saved_to_meanwhile": removal.is_run_alive,
    }
