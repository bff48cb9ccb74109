"""`milepost status`: whether a run is complete."""

from __future__ import annotations

import argparse
import os
from typing import Any

from milepost.series.completion import is_complete_with
from milepost.series.state_file import state_of
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tools.arguments import DIFFERS, SUCCESS, add_command, add_json
from milepost.tools.paths import typed_path
from milepost.tools.terminal import line, print_json, shown


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "status",
        run,
        "say whether a run is complete, or is to be started again",
        ["milepost status ./run", "until milepost status ./run; do python train.py || sleep 60; done"],
        {0: "the run is complete", 1: "it is not: it has not begun, was interrupted, or is running"},
        "A run is complete when its program has called complete() of the manager, and has saved nothing since.",
    )
    command.add_argument("directory", metavar="DIRECTORY", type=typed_path, help="the directory of the checkpoints")
    add_json(command)


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    state = state_of(DEFAULT_STORAGE, options.directory)
    newest = None if state is None else state.model_checkpoint_path
    is_complete = newest is not None and is_complete_with(DEFAULT_STORAGE, newest)
    if options.json:
        print_json({"directory": options.directory, "complete": is_complete, "latest": newest})
    elif newest is None:
        line("not complete: nothing is saved")
    else:
        line(
            f"{'complete' if is_complete else 'not complete'}: the newest checkpoint is {shown(os.path.basename(newest))}"
        )
    return SUCCESS if is_complete else DIFFERS
