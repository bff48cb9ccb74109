r"""Paths as commands print them, and as users type them again.

A command prints a path with escapes for what is invisible (`milepost.tools.terminal.shown`). A user may type it so. Where nothing is at the
path as it was typed, a name in it means the file or directory that is printed so.
"""

from __future__ import annotations

import os
from typing import Final

from milepost.tools.terminal import shown

_MARK: Final = "\\"
"""What every escape begins with."""


def typed_path(text: str) -> str:
    r"""The path that a user means, who may have typed it as it was printed.

    Args:
        text: The path. Its last part may be the beginning of a name, as the prefix of a checkpoint is.

    Example:
        >>> typed_path(r"no/such\x1bpath")
        'no/such\\x1bpath'
    """
    if _MARK not in text:
        return text
    above = ""
    for part in text.split(os.sep):
        above += (_meant(above, part) if _MARK in part else part) + os.sep
    return above.removesuffix(os.sep)


def _meant(directory: str, part: str) -> str:
    """The name, or the beginning of a name, in a directory that is printed so. ``part`` itself if there is one, or if there is no other."""
    try:
        names = os.listdir(directory or os.curdir)
    except (OSError, ValueError):
        return part
    if any(name.startswith(part) for name in names):
        return part
    for name in sorted(names):
        if shown(name).startswith(part):
            for length in range(len(name), 0, -1):
                if shown(name[:length]) == part:
                    return name[:length]
    return part
