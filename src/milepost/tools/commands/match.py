"""`milepost match`: what a restore into a program's objects would do."""

from __future__ import annotations

import argparse
import dataclasses
from functools import partial
from typing import Any

from milepost.checkpoint.checkpoint import view_of
from milepost.checkpoint.reader import resolve
from milepost.checkpoint.tree_checkpoint import is_of_series
from milepost.engine.options import CheckpointOptions, resolved
from milepost.engine.report import Outcome, Report
from milepost.engine.translation import Translation
from milepost.foreign import newest_of_orbax
from milepost.restoring.load import open_any, preview
from milepost.restoring.offers import offered
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tools.arguments import (
    DIFFERS,
    FILES,
    SUCCESS,
    add_checkpoint,
    add_command,
    add_json,
    add_translation,
    object_of_module,
)
from milepost.tools.live_object import checkpoint_named
from milepost.tools.names import ROOT, printed, translation_of
from milepost.tools.remedies import in_options
from milepost.tools.terminal import line, note, print_json, shown, warning

_BAD = (
    Outcome.MISSING,
    Outcome.LEFT_OUT,
    Outcome.DEFERRED,
    Outcome.UNEXPECTED,
    Outcome.WRONG_SHAPE,
    Outcome.WRONG_DTYPE,
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
        "The module is imported, so its code runs. No value of the checkpoint is read. Without a save_counter in the checkpoint, as after "
        "write(), it is matched as read() does.",
    )
    add_checkpoint(command, text=FILES)
    command.add_argument(
        "object",
        metavar="MODULE:OBJECT",
        type=object_of_module,
        help="a Checkpoint, a CheckpointManager, a model, a dict of what Checkpoint takes by name, or a function without arguments that "
        "returns one of these; modules of the current directory are found",
    )
    add_translation(command)
    command.add_argument("--cast", action="store_true", help="as restore(cast=True)")
    add_json(command)


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    path = newest_of_orbax(DEFAULT_STORAGE, resolve(options.checkpoint, DEFAULT_STORAGE, "files"))
    unused: list[str] = []
    translation = _translation(options, path, unused)
    checkpoint = checkpoint_named(options.object)
    if is_of_series(path, DEFAULT_STORAGE):
        _ = checkpoint.save_counter  # restore() makes it, and read() does not
    try:
        report = preview(path, partial(view_of, checkpoint), resolved(CheckpointOptions()), translation)
    finally:
        for each in unused:
            warning(each)
    bad = [each for each in report if each.outcome in _BAD and not each.skipped_by_tensorflow]
    argument = offered(report.entries)
    if options.json:
        print_json(report.to_dict() | {"exact": not bad, "unused_names": unused, "offer": argument or None})
    else:
        line(str(_with_whole(report, path)))
        if argument:
            line(f"if the program has other names than the file, restore with {shown(argument)}")
            if in_options(argument) != argument:
                note(f"to see what that would do: {shown(in_options(argument))}")
    return DIFFERS if bad or unused else SUCCESS


def _translation(options: argparse.Namespace, path: str, unused: list[str]) -> Translation:
    keys: list[str] = []
    if options.rename or options.ignore or options.only:
        with open_any(DEFAULT_STORAGE, path) as reader:
            keys = reader.keys()
    name_options = options.rename, options.ignore, options.only
    return translation_of(keys, *name_options, tell=unused.append, cast=options.cast, escaped=True)


def _with_whole(report: Report, path: str) -> Report:
    """The report, in which the only value of a file is called as other commands call it."""
    if not any(entry.key == ROOT and entry.saved for entry in report):
        return report
    with open_any(DEFAULT_STORAGE, path) as reader:
        name = printed(ROOT, reader)
    entries = (dataclasses.replace(each, key=name) if each.key == ROOT and each.saved else each for each in report)
    return dataclasses.replace(report, entries=tuple(entries))
