"""The `milepost` command: its parser, and what is the same for all commands. Each command is a file in `commands`."""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Final

import milepost
from milepost.tools.arguments import CANNOT
from milepost.tools.remedies import for_command
from milepost.tools.terminal import note, shown, warning

_COMMANDS: Final = (
    "ls",
    "show",
    "cat",
    "diff",
    "digest",
    "files",
    "match",
    "status",
    "verify",
    "repair",
    "prune",
    "rm",
    "pin",
    "unpin",
    "convert",
    "graph",
    "report",
    "check-resume",
    "demo",
    "completion",
)
"""The modules in `milepost.tools.commands`, which have an underscore where a command has a hyphen."""
_OTHER_WORDS: Final = {
    "check": "verify",
    "compare": "diff",
    "delete": "rm",
    "dump": "show",
    "export": "convert",
    "extract": "files",
    "fix": "repair",
    "hash": "digest",
    "info": "show",
    "inspect": "show",
    "list": "ls",
    "remove": "rm",
    "tree": "show",
    "validate": "verify",
    "view": "show",
}
"""What other programs call these commands."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        arguments: The arguments of the command; by default those of this process.

    Returns:
        The exit status: 0 for success, 1 if the answer is no, such as damaged or different, 3 for an error. Wrong arguments raise
        `SystemExit` with 2.
    """
    _open_what_is_closed()
    _escape_what_cannot_be_shown()
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = _parsed(words)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", milepost.errors.MilepostWarning)
            warnings.showwarning = _Shown()
            status: int = options.run(options)
            sys.stdout.flush()
    except milepost.MilepostError as error:
        note(f"error: {for_command(error, options.command)}")
        return CANNOT
    except BrokenPipeError:
        # The reader of the output has closed it; Python must not try to write the rest at exit.
        _discard_output()
        return 128 + getattr(signal, "SIGPIPE", 13)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:  # of files that are read and written, the library raises errors of its own
        _discard_output()
        note(f"error: cannot write the output: {error.strerror}")
        return CANNOT
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
        "not matched), 2 for wrong arguments, 3 for an error, and 128 + N if signal N ended it (141: the reader of a pipe has closed it).",
    )
    top.add_argument("--version", action="version", version=f"milepost {milepost.__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in [name for name in wanted if name in _COMMANDS] or _COMMANDS:
        importlib.import_module(f"milepost.tools.commands.{name.replace('-', '_')}").add(commands)
    top.set_defaults(parser=parser)
    return top


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """The options that the words of the command line mean. Wrong ones end the program with 2, and similar right ones are named."""
    first = words[0] if words else ""
    if not words:
        parser().print_help(sys.stderr)
        raise SystemExit(2)
    if first == "help":  # as other programs have it
        words = [*words[1:2], "--help"]
    elif first.startswith("-"):
        if not {"-h", "--help", "--version"} & set(words):
            parser().error(
                f"{shown(first)!r} is before the command; options come after it{_meant([first], ['--version'])}"
            )
    elif first and first not in _COMMANDS:
        near = [_OTHER_WORDS[first]] if first in _OTHER_WORDS else difflib.get_close_matches(first, _COMMANDS, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"the commands are {', '.join(_COMMANDS)}"
        parser().error(f"there is no command {shown(first)!r}; {meant}")
    # The modules of other commands need not be imported.
    options, unknown = parser(words[:1]).parse_known_args(words)
    if unknown:
        known = re.findall(r"(?<!\S)--[a-z-]+", options.own_parser.format_help())
        options.usage_error(f"unrecognized arguments: {shown(' '.join(unknown))}{_meant(unknown, known)}")
    return options


def _meant(unknown: Sequence[str], known: Sequence[str]) -> str:
    """The options that are similar to unknown ones, as a question."""
    names = [each.partition("=")[0] for each in unknown if each.startswith("--")]
    near = [found[0] for each in names if (found := difflib.get_close_matches(each, known, 1))]
    return f"; did you mean {' and '.join(near)}?" if near else ""


def _escape_what_cannot_be_shown() -> None:
    """Escapes characters that the encoding of the output lacks, which would otherwise raise an error. Windows has such encodings,
    and the C locale."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


def _open_what_is_closed() -> None:
    """Lets the output and the error output go nowhere where the caller has closed them. Messages would be in the output otherwise."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends


def _discard_output() -> None:
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # the output is no file
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends


class _Shown:
    """Shows each warning once, and without its line of code, which does not help the user of a command."""

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def __call__(self, message: Warning | str, *_: Any, **__: Any) -> None:
        text = str(message)
        if text not in self._texts:
            self._texts.add(text)
            warning(text)
