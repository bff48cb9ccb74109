"""The `milepost` command."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

import milepost
from milepost.engine.load import open_any
from milepost.errors import printable
from milepost.foreign import ForeignReader, is_item_of_orbax
from milepost.storage import LOCAL_STORAGE
from milepost.tools import demo
from milepost.tools.picture import picture_of, specs_of
from milepost.tools.svg import to_dot, to_svg


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: The arguments of the command; by default those of this process.

    Returns:
        The exit status: 0 for success, 1 for an error.
    """
    _escape_what_cannot_be_shown()
    options = parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status: int = options.run(options)
    except milepost.MilepostError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of the output has closed it; Python must not try to write the rest at exit.
        sys.stdout = None
        return 0
    return status


def _escape_what_cannot_be_shown() -> None:
    """Escapes characters that the terminal's encoding lacks, as on Windows, where they would otherwise raise an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    # Without the line of code, which does not help the user of a command.
    print(f"warning: {printable(str(message))}", file=sys.stderr)


def parser() -> argparse.ArgumentParser:
    """Makes the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="milepost",
        description="Inspect and verify checkpoints, and files of PyTorch, DCP, safetensors, Flax and Orbax.",
        epilog="'milepost COMMAND --help' describes a command. The exit status is 0 for success, 1 if a checkpoint is "
        "damaged or an error occurred, and 2 for wrong arguments.",
    )
    top.add_argument("--version", action="version", version=f"milepost {milepost.__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_list(commands)
    _add_verify(commands)
    _add_graph(commands)
    _add_demo(commands)
    return top


def _command(commands: Any, name: str, run: Any, text: str, example: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    return command


_FILES: Final = "the path of a checkpoint, of a file of another library, or of a directory"


def _add_checkpoint(
    command: argparse.ArgumentParser, paths: str = _FILES, of_directory: str = "its latest checkpoint is used"
) -> None:
    command.add_argument(
        "checkpoint", metavar="CHECKPOINT", help=f"{paths}; for a directory of checkpoints, {of_directory}"
    )


def _add_list(commands: Any) -> None:
    command = _command(commands, "ls", _list, "list the tensors of a checkpoint", "milepost ls ./tf_ckpts/ckpt-10")
    _add_checkpoint(command)
    command.add_argument("--json", action="store_true", help="print JSON")


def _list(options: argparse.Namespace) -> int:
    prefix = milepost.load_checkpoint(options.checkpoint).prefix
    with open_any(LOCAL_STORAGE, prefix) as bundle:
        rows = []
        for key in sorted(bundle.keys()):
            spec = bundle.spec(key)
            # The size of strings is not known from their shape.
            size = bundle.entry(key).size if spec.dtype.is_bytes else spec.nbytes
            rows.append({"key": key, "dtype": spec.dtype.name, "shape": list(spec.shape), "bytes": size})
        objects = bundle.objects if isinstance(bundle, ForeignReader) else {}
    if options.json:
        rows += [{"key": key, "object": kind} for key, kind in objects.items()]
        print(json.dumps(rows, indent=1))
        return 0
    width, digits = (max((len(str(row[name])) for row in rows), default=0) for name in ("dtype", "bytes"))
    for row in rows:
        print(
            f"{row['dtype']!s:{width}}  {row['bytes']!s:>{digits}}  {printable(str(row['key']), one_line=True)}  {row['shape']}"
        )
    for key, kind in objects.items():
        print(printable(f"object, not read: {key or '(the whole file)'}  {kind}", one_line=True))
    return 0


def _add_verify(commands: Any) -> None:
    command = _command(
        commands,
        "verify",
        _verify,
        "read all data of a checkpoint and verify every checksum",
        "milepost verify ./tf_ckpts",
    )
    _add_checkpoint(command, of_directory="every checkpoint that its state file lists is verified")


def _verify(options: argparse.Namespace) -> int:
    status = 0
    for path in _all_checkpoints(options.checkpoint):
        try:
            reader = milepost.CheckpointReader(path)
            reader.verify(progress=sys.stderr.isatty() and find_spec("rich") is not None)
        except milepost.MilepostError as error:
            print(f"error: {error}", file=sys.stderr)
            status = 1
        else:
            # Files of other libraries may not have checksums.
            found = "all readable" if reader.foreign else "all checksums correct"
            prefix = printable(reader.prefix, one_line=True)
            print(f"{prefix}: {len(reader.get_variable_to_shape_map())} tensors, {found}")
    return status


def _all_checkpoints(path: str) -> list[str]:
    """The checkpoint at a path, or all that the state file of a directory lists, including damaged ones."""
    if not os.path.isdir(path) or os.path.isfile(path + ".index") or is_item_of_orbax(LOCAL_STORAGE, path):
        return [path]
    state = milepost.get_checkpoint_state(path)
    return [milepost.load_checkpoint(path).prefix] if state is None else state.newest_first()


def _add_graph(commands: Any) -> None:
    command = _command(
        commands,
        "graph",
        _graph,
        "draw the object graph of a checkpoint: optimizers red, variables blue, slot variables orange",
        "milepost graph ./tf_ckpts/ckpt-10 -o graph.svg --root net",
    )
    _add_checkpoint(command, "the path of a checkpoint or directory")
    command.add_argument("-o", "--output", metavar="FILE", help="FILE.svg or FILE.dot; without it, SVG is printed")
    command.add_argument(
        "--root",
        default="",
        metavar="PATH",
        help="draw only the object at this path and those below it, such as net/l1",
    )
    command.add_argument(
        "--depth",
        type=_natural,
        metavar="N",
        help="draw only objects that are at most N edges below the root, or below PATH",
    )


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected 0 or a larger whole number, found {text!r}")
    return int(text)


def _graph(options: argparse.Namespace) -> int:
    reader = milepost.load_checkpoint(options.checkpoint)
    if reader.foreign:
        raise milepost.UnsupportedError(
            "files of other libraries have no object graph to draw",
            file=reader.prefix,
            expected="a checkpoint of milepost or TensorFlow",
            found="a file of another library",
            remedy=f"list its tensors: milepost ls {reader.prefix}",
        )
    specs = specs_of(reader)
    graph = milepost.CheckpointView(reader.prefix).graph
    picture = picture_of(graph, specs, root=options.root, depth=options.depth)
    draw = to_dot if (options.output or "").endswith(".dot") else to_svg
    text = draw(picture, f"Object graph of {reader.prefix}")
    if options.output is None:
        print(text, end="")
        return 0
    try:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise milepost.StorageError(
            "cannot write the picture",
            errno=error.errno,
            file=options.output,
            found=error.strerror,
            remedy="pass the path of a file in an existing directory that you may write to",
        ) from error
    print(f"{printable(options.output, one_line=True)}: {len(picture.nodes)} nodes, {len(picture.edges)} edges")
    return 0


def _add_demo(commands: Any) -> None:
    command = _command(
        commands,
        "demo",
        lambda options: demo.run(options.directory),
        "train, get killed, resume, and compare every loss bit for bit with an uninterrupted run",
        "milepost demo",
    )
    command.add_argument("--directory", help="the directory to write to; by default a new temporary one")
