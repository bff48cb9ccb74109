"""Writes the manual of the command line from its own help: ``python -m milepost.tools.manual > docs/cli.md``."""

from __future__ import annotations

import argparse
import os

from milepost.tools.cli import parser


def manual() -> str:
    """The manual, in Markdown."""
    os.environ["COLUMNS"] = "100"  # what argparse wraps its help at
    top = parser()
    parts = ["# Command line\n\nThis page is what `--help` prints.\n"]
    parts.append(_section("milepost", top))
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            parts += [_section(f"milepost {name}", command) for name, command in action.choices.items()]
    return "\n".join(parts)


def _section(title: str, command: argparse.ArgumentParser) -> str:
    return f"## {title}\n\n```text\n{command.format_help()}```\n"


if __name__ == "__main__":
    print(manual(), end="")
