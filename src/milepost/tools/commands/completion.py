"""`milepost completion`: a script by which a shell completes the command line."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from milepost.errors import UnsupportedError
from milepost.tools.arguments import SUCCESS, add_command

SHELLS = ("bash", "zsh", "tcsh")


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "completion",
        run,
        "print a script by which a shell completes commands, options and paths",
        ['eval "$(milepost completion bash)"', "milepost completion zsh > ~/.zfunc/_milepost"],
        {0: "the script is printed"},
        "It needs the package shtab: pip install 'milepost[cli]'.",
    )
    command.add_argument("shell", choices=SHELLS, help="the shell")


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    try:
        shtab = importlib.import_module("shtab")
    except ImportError:
        raise UnsupportedError(
            "the package shtab, which writes completion scripts, is not installed",
            remedy="pip install 'milepost[cli]'",
        ) from None
    top = options.parser()
    _complete_paths(top, shtab.FILE)
    print(shtab.complete(top, options.shell))
    return SUCCESS


def _complete_paths(top: argparse.ArgumentParser, files: Any) -> None:
    """Says which arguments are paths."""
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_paths(command, files)
        elif action.dest in ("path", "checkpoint", "checkpoints", "directory", "a", "b", "source", "target", "output"):
            action.complete = files  # type: ignore[attr-defined]  # where shtab looks
