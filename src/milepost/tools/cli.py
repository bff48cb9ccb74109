"""The `milepost` command: its parser, and what is the same for all commands. Each command is a file in `commands`."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Final

import milepost
from milepost.errors import printable
from milepost.tools.arguments import CANNOT
from milepost.tools.remedies import for_command

_COMMANDS: Final = (
    "ls",
    "show",
    "cat",
    "diff",
    "match",
    "verify",
    "repair",
    "prune",
    "convert",
    "graph",
    "report",
    "demo",
    "completion",
)
"""The modules in `milepost.tools.commands`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: The arguments of the command; by default those of this process.

    Returns:
        The exit status: 0 for success, 1 if the answer is no, such as damaged or different, 3 for an error. Wrong arguments raise
        `SystemExit` with 2.
    """
    _escape_what_cannot_be_shown()
    words = sys.argv[1:] if arguments is None else list(arguments)
    # The modules of other commands need not be imported.
    options = parser(words[:1]).parse_args(words)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            status: int = options.run(options)
            if sys.stdout is not None:
                sys.stdout.flush()
    except milepost.MilepostError as error:
        print(f"error: {for_command(error)}", file=sys.stderr)
        return CANNOT
    except BrokenPipeError:
        # The reader of the output has closed it; Python must not try to write the rest at exit.
        _discard_output()
        return 128 + getattr(signal, "SIGPIPE", 13)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return status


def parser(wanted: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Makes the parser of the command line.

    Args:
        wanted: The only commands that the parser must know; by default all.
    """
    top = argparse.ArgumentParser(
        prog="milepost",
        description="Look at checkpoints, compare, verify and repair them: those of milepost and TensorFlow, and files of PyTorch, DCP, "
        "safetensors, Flax, Orbax, Keras and NumPy.",
        epilog="'milepost COMMAND --help' describes a command. The exit status is 0 for success, 1 if the answer is no (damaged, different, "
        "not matched), 2 for wrong arguments, and 3 for an error.",
    )
    top.add_argument("--version", action="version", version=f"milepost {milepost.__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in [name for name in wanted if name in _COMMANDS] or _COMMANDS:
        importlib.import_module(f"milepost.tools.commands.{name}").add(commands)
    top.set_defaults(parser=parser)
    return top


def _escape_what_cannot_be_shown() -> None:
    """Escapes characters that the terminal's encoding lacks, as on Windows, where they would otherwise raise an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # the output is no file
        sys.stdout = None


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    # Without the line of code, which does not help the user of a command.
    print(f"warning: {printable(str(message))}", file=sys.stderr)
