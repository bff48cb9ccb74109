"""`milepost match`: what a restore into a program's objects would do."""

from __future__ import annotations

import argparse
from typing import Any

import milepost
from milepost.checkpoint.checkpoint import view_of
from milepost.checkpoint.reader import resolve
from milepost.engine.load import preview
from milepost.engine.offers import offered
from milepost.engine.options import CheckpointOptions, resolved
from milepost.engine.translation import Translation
from milepost.engine.unused_names import unused_names_collected
from milepost.storage import LOCAL_STORAGE
from milepost.tools.arguments import DIFFERS, FILES, SUCCESS, add_checkpoint, add_command, add_json, add_translation
from milepost.tools.live_object import checkpoint_named
from milepost.tools.remedies import in_options
from milepost.tools.terminal import line, print_json, shown, warning

_BAD = (
    milepost.Outcome.MISSING,
    milepost.Outcome.DEFERRED,
    milepost.Outcome.UNEXPECTED,
    milepost.Outcome.WRONG_SHAPE,
    milepost.Outcome.WRONG_DTYPE,
)


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "match",
        run,
        "say what a restore into the objects of a program would do, without doing it",
        [
            "milepost match ./tf_ckpts train:make_checkpoint",
            "milepost match model.safetensors train:model --rename transformer=backbone --ignore head",
        ],
        {
            0: "every saved value and every live value would be matched",
            1: "some would not, or --rename, --ignore or --only names nothing",
        },
        "The module is imported, so its code runs. No value of the checkpoint is read.",
    )
    add_checkpoint(command, text=FILES)
    command.add_argument(
        "object",
        metavar="MODULE:OBJECT",
        help="a Checkpoint, a CheckpointManager, a model, a dict of what Checkpoint takes by name, or a function without arguments that "
        "returns one of these; modules of the current directory are found",
    )
    add_translation(command)
    command.add_argument("--cast", action="store_true", help="as restore(cast=True)")
    add_json(command)


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    path = resolve(options.checkpoint, LOCAL_STORAGE, "files")
    translation = Translation(dict(options.rename), options.ignore, options.only, options.cast)
    checkpoint = checkpoint_named(options.object)
    _ = checkpoint.save_counter  # which every restore makes
    with unused_names_collected() as unused:
        try:
            report = preview(path, lambda: view_of(checkpoint), resolved(CheckpointOptions()), translation)
        finally:
            for each in unused:
                warning(each)
    bad = [each for each in report if each.outcome in _BAD and not each.skipped_by_tensorflow]
    argument = offered(report.entries)
    if options.json:
        print_json(report.to_dict() | {"exact": not bad, "unused_names": unused, "offer": argument or None})
    else:
        line(str(report))
        if argument:
            line(f"if the program has other names than the file, restore with {shown(argument)}")
            if in_options(argument) != argument:
                line(f"to see what that would do: {shown(in_options(argument))}")
    return DIFFERS if bad or unused else SUCCESS
