"""`milepost convert`: writes the values of a checkpoint in another format."""

from __future__ import annotations

import argparse
import os
import re
from typing import Any, Final

import milepost
from milepost.bundle import BundleReader, index_path
from milepost.checkpoint.load_tree import load_as
from milepost.engine.translation import Translation
from milepost.errors import CheckpointExistsError
from milepost.foreign import ForeignReader
from milepost.foreign.safetensors import SUFFIX
from milepost.graph.keys import METADATA, OBJECT_GRAPH
from milepost.tools import amounts, npz_writer, safetensors_writer
from milepost.tools.arguments import DIFFERS, FILES, SUCCESS, add_checkpoint, add_command, add_json, add_translation
from milepost.tools.exporting import Export, floating, planned
from milepost.tools.named import open_named
from milepost.tools.terminal import line, note, print_json, progress, shown

_NPZ: Final = ".npz"
_FORMATS: Final = ("safetensors", "npz", "checkpoint")
_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30}
_MOST_LISTED: Final = 20


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "convert",
        run,
        "write the values of a checkpoint as safetensors, as .npz, or as a checkpoint of milepost",
        [
            "milepost convert ./tf_ckpts model.safetensors --only net --rename net= --dots",
            "milepost convert pytorch_model.bin ./converted/ckpt",
        ],
        {
            0: "all values are carried over, but for those that are to be left out",
            1: "the format cannot hold some values, which are listed",
        },
        "Files are written in pieces, so memory does not grow with them; a checkpoint of milepost is made in memory.",
    )
    add_checkpoint(command, "source", FILES)
    command.add_argument(
        "target",
        metavar="TARGET",
        help="what to write: FILE.safetensors, FILE.npz, or the prefix of a checkpoint of milepost",
    )
    command.add_argument("--to", choices=_FORMATS, help="the format, if the ending of TARGET does not say it")
    add_translation(command)
    command.add_argument("--dots", action="store_true", help="separate names by dots, as PyTorch does")
    command.add_argument(
        "--as",
        dest="dtype",
        metavar="TYPE",
        help="convert floating-point numbers to this type, such as float16; not for checkpoints",
    )
    command.add_argument(
        "--max-shard-size",
        type=_bytes,
        metavar="SIZE",
        help="write files of at most this size, such as 5GB; for safetensors, with an index, and for checkpoints",
    )
    command.add_argument("--overwrite", action="store_true", help="replace what TARGET names, if it exists")
    add_json(command)
    command.set_defaults(usage_error=command.error)


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *([KMG]I?|)B?", text.strip().upper())
    size = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"expected a size such as 500MB or 2GiB, found {text!r}")
    return size


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    form = options.to or _form_of(options.target)
    if form == "npz" and options.max_shard_size is not None:
        options.usage_error("--max-shard-size is not for .npz files")
    if form == "checkpoint" and (options.dtype is not None or options.dots):
        options.usage_error("--as and --dots are not for checkpoints of milepost")
    translation = Translation(dict(options.rename), options.ignore, options.only)
    with open_named(options.source, verify="files") as reader:
        if form == "checkpoint":
            files, export = _to_checkpoint(reader, translation, options)
        else:
            files, export = _to_file(reader, form, translation, options)
        _say(reader, files, export, as_json=options.json)
    return DIFFERS if export.left_out else SUCCESS


def _form_of(target: str) -> str:
    return "safetensors" if target.endswith(SUFFIX) else "npz" if target.endswith(_NPZ) else "checkpoint"


def _to_file(
    reader: BundleReader, form: str, translation: Translation, options: argparse.Namespace
) -> tuple[list[str], Export]:
    writer: Any = safetensors_writer if form == "safetensors" else npz_writer
    dtype = None if options.dtype is None else floating(options.dtype)
    export = planned(reader, translation, writer.accepts, dots=options.dots, dtype=dtype)
    target = options.target
    files = {target: export.tensors}
    if form == "safetensors":
        files = safetensors_writer.files_for(target, export.tensors, options.max_shard_size)
    paths = [*files, *([safetensors_writer.index_of(target)] if len(files) > 1 else [])]
    _must_be_free(paths, options)
    with progress("convert", reader.prefix, sum(tensor.saved.nbytes for tensor in export.tensors)):
        if form == "safetensors":
            safetensors_writer.write(target, files, reader)
        else:
            npz_writer.write(target, export.tensors, reader)
    return paths, export


def _to_checkpoint(
    reader: BundleReader, translation: Translation, options: argparse.Namespace
) -> tuple[list[str], Export]:
    _must_be_free([index_path(options.target)], options)
    export = planned(reader, translation, lambda dtype: True)
    tree = load_as(reader.prefix, translation.live_name, mapped=True)
    how = milepost.CheckpointOptions()
    if options.max_shard_size is not None:
        how.experimental_sharding_callback = milepost.MaxShardSizePolicy(options.max_shard_size)
    path = milepost.save(options.target, tree, how)
    with open_named(path) as written:
        return [index_path(path), *written.shard_paths], export


def _must_be_free(paths: list[str], options: argparse.Namespace) -> None:
    present = [path for path in paths if os.path.lexists(path)]
    if present and not options.overwrite:
        raise CheckpointExistsError(
            "this file exists, and is not replaced unless you say so",
            file=present[0],
            remedy="pass --overwrite, or another name",
        )


def _say(reader: BundleReader, files: list[str], export: Export, *, as_json: bool) -> None:
    behind = [
        what
        for key, what in ((OBJECT_GRAPH, "the object graph"), (METADATA, "metrics and metadata"))
        if not isinstance(reader, ForeignReader) and key in reader
    ]
    size = sum(os.path.getsize(path) for path in files)
    if as_json:
        print_json(
            {
                "source": reader.prefix,
                "bytes": size,
                "files": files,
                "tensors": [{"name": each.name, "key": each.key, "type": str(each.spec)} for each in export.tensors],
                "left_out": [{"key": key, "reason": reason} for key, reason in export.left_out.items()],
                "unwanted": export.unwanted,
                "not_carried_over": behind,
            }
        )
        return
    line(
        f"{shown(files[0])}: {amounts.plural(len(export.tensors), 'tensor')}, {amounts.size(size)} in {amounts.plural(len(files), 'file')}"
    )
    if behind:
        note(f"not carried over: {', '.join(behind)}")
    if export.unwanted:
        note(f"left out, as you said: {amounts.plural(len(export.unwanted), 'tensor')}")
    for key, reason in list(export.left_out.items())[:_MOST_LISTED]:
        note(f"left out: {shown(key)}: {shown(reason)}")
    if len(export.left_out) > _MOST_LISTED:
        note(f"left out: {len(export.left_out) - _MOST_LISTED} more, which --json lists")
