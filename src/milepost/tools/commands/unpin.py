"""`milepost unpin`: lets checkpoints be removed again."""

from __future__ import annotations

import argparse
from typing import Any

from milepost.series.pins import is_pinned, unpin
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tools.arguments import SUCCESS, add_command
from milepost.tools.prefixes import add_prefixes, prefixes_of
from milepost.tools.terminal import line, shown


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "unpin",
        run,
        "let pinned checkpoints be removed again",
        ["milepost unpin ./tf_ckpts/ckpt-10"],
        {0: "the checkpoints are not pinned"},
        "The next save of a manager removes them if nothing else keeps them.",
    )
    add_prefixes(command)


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    for prefix in prefixes_of(options):
        was_pinned = is_pinned(DEFAULT_STORAGE, prefix)
        unpin(DEFAULT_STORAGE, prefix)
        line(f"{'unpinned' if was_pinned else 'was not pinned'}: {shown(prefix)}")
    return SUCCESS
