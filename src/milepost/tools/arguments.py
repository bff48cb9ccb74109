"""What all commands say about their arguments in the same way."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from milepost.retention import Best
from milepost.storage.output_file import check_free
from milepost.tools.paths import typed_path
from milepost.tools.terminal import shown

SUCCESS: Final = 0
DIFFERS: Final = 1
"""The answer is no: damaged, different, not matched."""
CANNOT: Final = 3
"""The command could not do its work: nothing is there, it cannot be read, or milepost does not support it. Wrong arguments have 2."""

FILES: Final = "a checkpoint (its prefix), a SavedModel, a file or directory of another library, or a directory of checkpoints, whose latest is used"


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    examples: Sequence[str],
    statuses: Mapping[int, str],
    details: str = "",
) -> argparse.ArgumentParser:
    """Adds a command to the parser.

    Args:
        commands: The subparsers.
        name: Its name.
        run: What it does. It returns the exit status.
        text: One sentence about it, which begins with a small letter and ends without a full stop.
        examples: Lines to type.
        statuses: What each exit status means. Those of wrong arguments and of errors are added.
        details: More about it, for its own help.
    """
    meanings = {**statuses, 2: "the arguments are wrong", CANNOT: "an error: the command could not do its work"}
    lines = ["examples:", *(f"  {each}" for each in examples), "", "exit status:"]
    lines += [f"  {status}  {meaning}" for status, meaning in sorted(meanings.items())]
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + "." + (f" {details}" if details else ""),
        epilog="\n".join(lines),
        formatter_class=_Formatter,
    )
    command.set_defaults(run=run, command=name, own_parser=command, usage_error=command.error)
    return command


def add_checkpoint(command: argparse.ArgumentParser, name: str = "checkpoint", text: str = FILES) -> None:
    """Adds the path of a checkpoint to the arguments of a command."""
    command.add_argument(name, metavar=name.upper(), type=typed_path, help=text)


def add_output(command: argparse.ArgumentParser, text: str) -> None:
    """Adds the file that a command writes to its options, and ``--overwrite``."""
    command.add_argument("-o", "--output", metavar="FILE", help=text)
    add_overwrite(command, "FILE")


def add_overwrite(command: argparse.ArgumentParser, what: str) -> None:
    """Adds ``--overwrite`` to the options of a command."""
    command.add_argument("--overwrite", action="store_true", help=f"replace what {what} names, if it exists")


def check_output(options: argparse.Namespace, *endings: str, otherwise: str = "") -> None:
    """Checks that the file that a command writes has a name that says so, and would replace nothing that is to stay.

    Args:
        options: The options of the command.
        endings: The endings that the name may have. It may also have none.
        otherwise: What to do for another ending.

    Raises:
        CheckpointExistsError: It would replace something.
        SystemExit: Its name has the ending of another kind of file.
    """
    if options.output is None:
        return
    ending = os.path.splitext(options.output)[1]
    if ending.lower() not in ("", *endings):
        known = " or ".join(f"-o FILE{each}" for each in endings)
        options.usage_error(
            f"'milepost {options.command}' writes no file that ends in {shown(ending)}: pass {known}"
            + (f"; {otherwise}" if otherwise else "")
        )
    if not options.overwrite and not os.path.isdir(options.output):
        check_free([options.output])


def add_json(command: argparse.ArgumentParser) -> None:
    """Adds ``--json`` to the options of a command."""
    command.add_argument("--json", action="store_true", help="print JSON, for programs")


def add_recursive(command: argparse.ArgumentParser, what: str) -> None:
    """Adds ``--recursive`` to the options of a command."""
    command.add_argument("-R", "--recursive", action="store_true", help=f"{what} in all directories below, too")


def add_rename(command: argparse.ArgumentParser, text: str) -> None:
    """Adds ``--rename`` to the options of a command."""
    command.add_argument(
        "--rename", action="append", default=[], type=_renaming, metavar="OLD=NEW", help=f"{text}; may be repeated"
    )


def add_translation(command: argparse.ArgumentParser, function: str = "restore") -> None:
    """Adds the options that change names and leave values out, as the arguments of a function do."""
    add_rename(
        command,
        f"give what is saved under OLD, with everything below it, the name NEW, as {function}(rename={{OLD: NEW}}) does",
    )
    command.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="NAME",
        help=f"leave NAME out, with everything below it, as {function}(ignore=[NAME]) does; may be repeated",
    )
    command.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help=f"leave everything else out, as {function}(only=[NAME]) does; may be repeated",
    )


def object_of_module(text: str) -> str:
    """The value of an argument that names a live object."""
    module, _, name = text.partition(":")
    if not (module and name):
        raise argparse.ArgumentTypeError(f"expected MODULE:OBJECT, such as train:make_checkpoint, found {text!r}")
    return text


def _renaming(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected OLD=NEW, found {text!r}")
    return old, new


def natural(text: str) -> int:
    """The value of an option that is a whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected 0 or a larger whole number, found {text!r}")
    return int(text)


def positive(text: str) -> int:
    """The value of an option that is a whole number from 1 on."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected 1 or a larger whole number, found {text!r}")
    return int(text)


def hours(text: str) -> float:
    """The value of an option that is a number of hours."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of hours greater than 0, found {text!r}")
    return value


def best(text: str) -> Best:
    """The value of an option that says which checkpoints are the best."""
    parts = text.split(":")
    count = parts.pop() if len(parts) > 2 and parts[-1].isdecimal() else "1"
    name, mode = ":".join(parts[:-1]), parts[-1]
    if mode not in ("min", "max") or not name or not int(count):
        raise argparse.ArgumentTypeError(
            f"expected METRIC:min or METRIC:max, perhaps with :N, such as loss:min:2; found {text!r}"
        )
    return Best(int(count), by=name, mode="min" if mode == "min" else "max")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Fills the description as the default formatter does, and keeps the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)
