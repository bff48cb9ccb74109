"""`milepost demo`: a training run that is killed and goes on."""

from __future__ import annotations

import argparse
from typing import Any

from milepost.tools import demo
from milepost.tools.arguments import add_command


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "demo",
        run,
        "train, get killed, resume, and compare every loss bit for bit with an uninterrupted run",
        ["milepost demo"],
        {0: "every loss is the same", 1: "a loss differs"},
    )
    command.add_argument("--directory", help="the directory to write to; by default a new temporary one")


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    return demo.run(options.directory)
