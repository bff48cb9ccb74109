"""`milepost digest`: one text for the values of a checkpoint or file, by which copies are compared."""

from __future__ import annotations

import argparse
from typing import Any

from milepost.conversion.digest import digest
from milepost.tools.arguments import FILES, SUCCESS, add_checkpoint, add_command
from milepost.tools.terminal import line


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "digest",
        run,
        "print a digest of the values of a checkpoint or file, by which copies are compared",
        ["milepost digest model.safetensors", "milepost digest ./tf_ckpts/ckpt-10 --below model"],
        {0: "the digest is printed"},
        "The same values under the same names have the same digest, in every format. It is that of milepost.digest(). All values are "
        "read, in pieces, so memory does not grow with them.",
    )
    add_checkpoint(command, text=FILES)
    command.add_argument(
        "--below", default="", metavar="NAME", help="take only what is below NAME, with names that begin there"
    )
    for option, text in (("--ignore", "leave NAME out"), ("--only", "leave everything else out")):
        command.add_argument(
            option,
            action="append",
            metavar="NAME",
            help=f"{text}, with everything below it; * stands for any text; may be repeated",
        )


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    line(digest(options.checkpoint, below=options.below, ignore=options.ignore or (), only=options.only))
    return SUCCESS
