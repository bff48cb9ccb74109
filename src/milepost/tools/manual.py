"""Writes the manual of the command line from its own help: ``python -m milepost.tools.manual > docs/cli.md``."""

from __future__ import annotations

import argparse

from milepost.tools.cli import parser


def manual() -> str:
    """The manual, in Markdown. It is made from the parts of the parser, because `argparse` formats help differently in each Python."""
    top = parser()
    lines = ["# Command line", "", top.epilog or "", ""]
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                lines += _section(name, command)
    return "\n".join(lines)


def _section(name: str, command: argparse.ArgumentParser) -> list[str]:
    lines = [f"## milepost {name}", "", command.description or "", "", "| argument | |", "|---|---|"]
    for action in command._actions:
        value = f" {action.metavar or action.dest.upper()}" if action.nargs != 0 and action.option_strings else ""
        names = ", ".join(f"`{option}{value}`" for option in action.option_strings) or f"`{action.metavar}`"
        lines.append(f"| {names} | {action.help} |")
    return [*lines, "", "```text", (command.epilog or "").removeprefix("example:\n  "), "```", ""]


if __name__ == "__main__":
    print(manual(), end="")
