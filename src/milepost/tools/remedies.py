"""Remedies of errors, as they are said to the user of a command.

Errors are raised by functions of Python, so their remedies name arguments and methods. A command has options and other commands for these.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
from collections.abc import Callable
from typing import Any, Final

from milepost.errors import MilepostError, StateFileError

_LITERAL: Final = r"(\{[^{}]*\}|\[[^\[\]]*\]|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
_OPTIONS: Final = {"rename": "--rename", "ignore": "--ignore", "only": "--only", "format": "--to", "dtype": "--as"}
_SWITCHES: Final = {"overwrite=True": "--overwrite", "cast=True": "--cast"}
_SKIPPED: Final = "; milepost.latest_checkpoint() skips damaged ones"
_BY_MANAGER: Final = "call unpin() of its CheckpointManager, or 'milepost unpin' with its path"
_ELSEWHERE: Final = ", or save to another one"
_NONE_WHOLE: Final = "copy intact checkpoints back: none in this directory is whole, so there is none to list; or delete the file, and training starts anew"


def _option(match: re.Match[str]) -> str:
    """An argument of a function as options of a command."""
    try:
        value = ast.literal_eval(match[2])
    except (ValueError, SyntaxError):
        return match[0]
    option = _OPTIONS[match[1]]
    pairs: list[Any] = [value]
    if isinstance(value, dict):
        pairs = [f"{old}={new}" for old, new in value.items()]
    elif isinstance(value, list):
        pairs = value
    return " ".join(f"{option} {shlex.quote(str(each))}" for each in pairs)


_SAID_OTHERWISE: Final[tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]] = (
    (rf"\b({'|'.join(_OPTIONS)})={_LITERAL}", _option),
    *((rf"(?<![(\w]){re.escape(switch)}(?!\w)", option) for switch, option in _SWITCHES.items()),
    (
        r"list the (\d+) keys with keys\(\) of the reader or milepost\.list_variables\(\)",
        r"list the \1 keys with 'milepost show'",
    ),
    (
        r"milepost\.latest_checkpoint\(\) skips damaged ones",
        "'milepost verify' of their directory says which are whole",
    ),
    (r"latest_checkpoint\((['\"])(.*?)\1\)", r"the directory \1\2\1, which means its latest checkpoint"),
    (r", or pass partial=True", ""),
    (r"; milepost\.latest_checkpoint\(directory\) finds the newest one, or None.*", ""),
    (r"; if the checkpoint is not on this machine, pass its storage.*", ""),
    (r"\bby (rename|ignore|only)\b", r"by --\1"),
    (r"\bwith (rename|ignore|only)\b", r"with --\1"),
    (r"correct rename, ignore and only:", "correct --rename, --ignore and --only:"),
    (r"(?<=: )rename has (?=')", "--rename has "),
    (r"(?<=: )(ignore|only) names (?=')", r"--\1 names "),
    (r"another name in rename\b", "another name with --rename"),
    (r"leave it out of (ignore|only)\b", r"leave out --\1"),
    (r"use read\(\)( instead of map\(\))?", "read it in Python"),
)


def in_options(text: str) -> str:
    """A text that names arguments of Python, with the options of a command for them."""
    for pattern, replacement in _SAID_OTHERWISE:
        text = re.sub(pattern, replacement, text)
    return text


def for_command(error: MilepostError, command: str = "") -> MilepostError:
    """The error, with a remedy for the user of a command.

    Args:
        error: The error.
        command: The name of the command, which its own remedies need not name.

    Example:
        >>> print(for_command(MilepostError("it exists", remedy="pass overwrite=True, or rename={'net': 'model'}")))
        it exists
          remedy: pass --overwrite, or --rename net=model
    """
    if isinstance(error, StateFileError) and "update_checkpoint_state" in (error.remedy or ""):
        directory = os.path.dirname(str(error.file)) or "."
        error.remedy = (
            _NONE_WHOLE
            if command == "repair"
            else f"'milepost repair {shlex.quote(directory)}' makes it anew from the checkpoints that are whole"
        )
    elif error.remedy is not None:
        if command == "verify":
            error.remedy = error.remedy.replace(_SKIPPED, "")
        elif command in ("prune", "repair"):
            error.remedy = error.remedy.replace(_ELSEWHERE, "")
        elif command == "rm":
            error.remedy = error.remedy.replace(_BY_MANAGER, "'milepost unpin' with its path; or pass --pinned")
        error.remedy = in_options(error.remedy)
    if command == "convert" and isinstance(error.found, str):  # why each value cannot be written
        error.found = in_options(error.found)
    return error
