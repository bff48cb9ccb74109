"""`milepost convert`: writes the values of a checkpoint in another format."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Any, Final

from milepost.bundle.casting import floating
from milepost.bundle.format.names import INDEX_SUFFIX
from milepost.checkpoint.checkpoint import Checkpoint
from milepost.checkpoint.reader import resolve
from milepost.conversion.conversion import Conversion, Wanted, converted
from milepost.conversion.formats import CHECKPOINT, FORMATS, KERAS, TENSORFLOW_1, WRITERS, format_of
from milepost.conversion.keras_names import keras_names
from milepost.engine.progress import reporting
from milepost.errors import UnsupportedError
from milepost.foreign import called
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tools import amounts
from milepost.tools.arguments import (
    DIFFERS,
    FILES,
    SUCCESS,
    add_checkpoint,
    add_command,
    add_json,
    add_overwrite,
    add_translation,
    object_of_module,
)
from milepost.tools.layouts import step_of
from milepost.tools.live_object import checkpoint_named
from milepost.tools.named import open_named
from milepost.tools.names import translation_of
from milepost.tools.remedies import for_command, in_options
from milepost.tools.terminal import is_drawn, line_about_file, named, note, print_json, shown, warning

_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30}
_MOST_LISTED: Final = 20


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "convert",
        run,
        "write the values of a checkpoint in another format",
        [
            "milepost convert ./tf_ckpts model.safetensors --only net --rename net= --dots",
            "milepost convert pytorch_model.bin ./converted/ckpt",
            "milepost convert ./tf_ckpts ./params --to orbax",
            "milepost convert model.safetensors ./fused/ckpt --layout \"Concatenate(['**/q', '**/k', '**/v'], '**/qkv')\"",
            "milepost convert ./tf_ckpts model.weights.h5 --object train:make_checkpoint",
        ],
        {
            0: "all values are carried over, but for those that are to be left out",
            1: "the format cannot hold some values, which are listed; or --rename, --ignore or --only names nothing",
        },
        "Files are written in pieces, so memory does not grow with them.",
    )
    add_checkpoint(command, "source", FILES)
    command.add_argument(
        "target",
        metavar="TARGET",
        help="what to write: FILE.safetensors, FILE.pt, .pth or .bin, FILE.npz, FILE.weights.h5 or .weights.json, a directory of Orbax, or the prefix of a "
        "checkpoint",
    )
    command.add_argument(
        "--to",
        choices=FORMATS,
        help="the format, if the ending of TARGET does not say it; checkpoint is a checkpoint of milepost, as for a TARGET without an ending",
    )
    command.add_argument(
        "--layout",
        metavar="STEP",
        action="append",
        type=step_of,
        default=[],
        help="lay out values otherwise, by a step of milepost.layouts as in Python, such as \"Transpose('*/kernel', '*/weight')\", before names are changed; "
        "may be repeated",
    )
    add_translation(command, "convert")
    command.add_argument(
        "--object",
        metavar="MODULE:OBJECT",
        type=object_of_module,
        help="for keras: the program's model, or a Checkpoint or dict with it, or a function without arguments that returns one of these; "
        "Keras says how it calls its variables, and the code of the module runs",
    )
    command.add_argument("--dots", action="store_true", help="separate names by dots, as PyTorch does")
    command.add_argument(
        "--as",
        dest="dtype",
        metavar="TYPE",
        help="convert floating-point numbers to this type, such as float16; not for checkpoints of milepost",
    )
    command.add_argument(
        "--max-shard-size",
        type=_bytes,
        metavar="SIZE",
        help="write files of at most this size, such as 5GB: for safetensors and torch with an index, and for checkpoints",
    )
    command.add_argument(
        "--metadata",
        metavar="NAME=TEXT",
        action="append",
        type=_entry,
        default=[],
        help="write this into the metadata of safetensors files; that of a safetensors file that is read is kept; may be repeated",
    )
    add_overwrite(command, "TARGET")
    add_json(command)


def _entry(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=TEXT, found {text!r}")
    return name, value


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([KMG]I?|)B?", text.strip().upper())
    size = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"expected a size such as 500MB or 2GiB, found {text!r}")
    return size


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    try:
        form = options.to or format_of(options.target)
        if options.dtype is not None:
            floating(options.dtype, "dtype")
    except UnsupportedError as error:
        options.usage_error(str(for_command(error)))
    if options.max_shard_size is not None and form in WRITERS and not WRITERS[form].divides:
        options.usage_error(f"--max-shard-size is not for {form}")
    if options.metadata and (form not in WRITERS or not WRITERS[form].describes):
        options.usage_error(f"--metadata is not for {form}")
    if form == CHECKPOINT and (options.dtype is not None or options.dots):
        options.usage_error(
            f"--as and --dots are not for checkpoints of milepost, and {shown(options.target)} is to be the prefix of one: leave them out, "
            "or write another format, which the ending of TARGET or --to says"
        )
    if options.object is not None and form != KERAS:
        options.usage_error(
            f"--object names a model from which a file of Keras takes its names, and {shown(options.target)} is to have the format {form}: "
            "leave --object out, or write FILE.weights.h5"
        )
    if options.object is not None and options.dots:
        options.usage_error("--dots is not for --object: the names are those that Keras has")
    live = None if options.object is None else checkpoint_named(options.object)
    unused: list[str] = []
    try:
        done = _done(options, form, live, unused)
    finally:
        for each in unused:
            warning(each)
    why = "as you said" if live is None else "since they are no variables of the model"
    is_whole = not (options.rename or options.only or options.ignore)
    _say(done, why, unused, as_json=options.json, with_part=is_whole)
    return DIFFERS if done.left_out or unused else SUCCESS


def _done(options: argparse.Namespace, form: str, live: Checkpoint | None, unused: list[str]) -> Conversion:
    """Converts, with the names that the variables of a live model have, if there is one."""
    with (
        open_named(options.source, verify="files", convert=options.layout) as reader,
        reporting(is_drawn(sys.stderr), "convert", reader.prefix) as progress,
    ):
        name_options = options.rename, options.ignore, options.only
        more: dict[str, Any] = {"tell": unused.append, "convert": options.layout, "escaped": live is not None}
        translation = translation_of(reader.keys(), *name_options, **more)
        names = None
        if live is not None:
            names = keras_names(resolve(options.source, DEFAULT_STORAGE, "files"), live, translation)
        wanted = Wanted(
            options.target,
            form,
            translation,
            separator="." if options.dots else "/",
            dtype=options.dtype,
            max_shard_size=options.max_shard_size,
            overwrite=options.overwrite,
            partial=True,
            names=names,
            metadata=dict(options.metadata) or None,
        )
        return converted(reader, wanted, progress)


def _say(done: Conversion, why: str, unused: Sequence[str], *, as_json: bool, with_part: bool) -> None:
    size = sum(map(_size, done.files))
    if as_json:
        print_json(
            {
                "source": done.source,
                "format": done.format,
                "bytes": size,
                "files": list(done.files),
                "tensors": [{"name": name, "key": key, "type": done.types[name]} for name, key in done.tensors.items()],
                "left_out": [{"key": key, "reason": reason} for key, reason in done.left_out.items()],
                "unwanted": list(done.unwanted),
                "not_carried_over": list(done.not_carried_over),
                "flattened": done.flattened,
                "rounded": done.rounded,
                "streams": list(done.streams),
                "unused_names": list(unused),
            }
        )
        return
    line_about_file(
        _opened_by(done),
        f"{amounts.plural(len(done.tensors), 'tensor')}, {amounts.size(size)} in {amounts.plural(len(done.files), 'file')}",
    )
    if done.not_carried_over:
        note(f"not carried over: {', '.join(map(shown, done.not_carried_over))}")
    if done.streams:
        note(
            f"torch.load needs weights_only=False, or torch.serialization.add_safe_globals([io.BytesIO]), because of "
            f"{', '.join(map(shown, done.streams))}"
        )
    if done.flattened:
        note(_flattened(done, with_part=with_part))
    if done.unwanted:
        note(f"left out, {why}: {amounts.plural(len(done.unwanted), 'tensor')}")
    if done.rounded:
        worst = max(done.rounded.values())
        vanished = "; the smallest have become 0" if worst >= 1 else ""
        note(
            f"rounded: numbers of {amounts.plural(len(done.rounded), 'tensor')}, which have changed by up to {worst * 100:.3g}% of their value{vanished}"
        )
    for key, reason in list(done.left_out.items())[:_MOST_LISTED]:
        note(f"left out: {named(called(key))}: {shown(in_options(reason))}")
    if len(done.left_out) > _MOST_LISTED:
        note(f"left out: {len(done.left_out) - _MOST_LISTED} more, which --json lists")


def _flattened(done: Conversion, *, with_part: bool) -> str:
    """The note that what was nested in the source has flat names, and how a part of it gets its own names."""
    name = next(each for each in done.tensors if "/" in each)
    part = shlex.quote(shown(name.partition("/")[0]))
    remedy = f"; '--only {part} --rename {part}=' writes that part alone, with its own names" if with_part else ""
    return f"what was nested has flat names now, such as {shown(name)}{remedy}"


def _opened_by(done: Conversion) -> str:
    """What opens all that was written: a prefix, the index of several files, or the only file."""
    if done.format in (CHECKPOINT, TENSORFLOW_1):
        return done.files[0].removesuffix(INDEX_SUFFIX)
    return done.files[-1]


def _size(path: str) -> int:
    """The bytes of a file, or of all files in a directory."""
    if not os.path.isdir(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(above, name)) for above, _, names in os.walk(path) for name in names)
