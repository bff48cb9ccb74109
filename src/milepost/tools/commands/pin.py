"""`milepost pin`: keeps checkpoints from being removed."""

from __future__ import annotations

import argparse
from typing import Any

from milepost.series.pins import is_pinned, pin
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tools.arguments import SUCCESS, add_command
from milepost.tools.prefixes import add_prefixes, prefixes_of
from milepost.tools.terminal import line, shown


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    command = add_command(
        commands,
        "pin",
        run,
        "keep checkpoints from being removed, until 'milepost unpin'",
        ["milepost pin ./tf_ckpts/ckpt-10", "milepost pin ./tf_ckpts/ckpt-10 ./tf_ckpts/ckpt-20"],
        {0: "the checkpoints are pinned"},
        "A pin is an empty file beside the checkpoint, which every manager of milepost looks for before it removes one, also a manager that runs "
        "now. 'milepost prune' keeps pinned checkpoints, and 'milepost rm' refuses them. TensorFlow's manager does not look for pins.",
    )
    add_prefixes(command)


def run(options: argparse.Namespace) -> int:
    """Does what the command says."""
    for prefix in prefixes_of(options):
        was_pinned = is_pinned(DEFAULT_STORAGE, prefix)
        pin(DEFAULT_STORAGE, prefix)
        line(f"{'pinned already' if was_pinned else 'pinned'}: {shown(prefix)}")
    return SUCCESS
