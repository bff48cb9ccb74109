"""What the page about the command line must say of a command: ``python -m milepost.tools.manual COMMAND`` prints it."""

from __future__ import annotations

import argparse
import sys

from milepost.tools.cli import parser


def documented(name: str) -> str:
    """Arguments and exit statuses of a command, in Markdown. They are those of its own help.

    Args:
        name: The command.
    """
    command = next(
        action.choices[name] for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    lines = ["| argument | |", "|---|---|"]
    for action in command._actions:
        value = f" {action.metavar or action.dest.upper()}" if action.nargs != 0 and action.option_strings else ""
        names = ", ".join(f"`{option}{value}`" for option in action.option_strings)
        lines.append(f"| {names or f'`{action.metavar or action.dest.upper()}`'} | {action.help} |")
    statuses = (command.epilog or "").partition("exit status:\n")[2].splitlines()
    lines += ["", "| exit status | |", "|---|---|"]
    lines += ["| {} | {} |".format(*status.strip().split("  ", 1)) for status in statuses]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(documented(sys.argv[1]), end="")
