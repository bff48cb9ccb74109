"""The directories in which the two runs of a command save.

If the command has ``{directory}`` among its words, a new directory stands there in each run, and the command runs where it was typed.
Otherwise it runs in a new working directory, in which everything of the present one appears by links, but for the directory of its checkpoints,
for other directories of checkpoints, and for empty ones. So a relative path for checkpoints means a new directory, and the checkpoints that exist stay as they are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from milepost.checkpoint.directories import latest_checkpoint
from milepost.errors import ArgumentError, MilepostError, StorageError
from milepost.series.state_file import STATE_FILE
from milepost.tools.resumes.processes import Program

PLACEHOLDER: Final = "{directory}"
_REMEDY: Final = f"write {PLACEHOLDER} in the command, where it names the directory of its checkpoints"


def prepare(command: Sequence[str], home: Path, saves_in: str | None, timeout: float | None) -> Program:
    """Makes the directories of one run.

    Args:
        command: The words of the command.
        home: The directory of the run, which does not exist.
        saves_in: Where the command saves, relative to its working directory; None if that is not known.
        timeout: The most seconds of one process.

    Raises:
        ArgumentError: The command saves outside of its working directory.
        StorageError: The links cannot be made.
    """
    home.mkdir(parents=True)
    working = home / "working"
    if any(PLACEHOLDER in word for word in command):
        working.mkdir()
        words = [word.replace(PLACEHOLDER, str(working)) for word in command]
        return Program(words, Path.cwd(), home, {}, _REMEDY, timeout)
    hidden = Path.cwd() / (saves_in or "")
    if saves_in is not None and (not hidden.is_relative_to(Path.cwd()) or ".." in hidden.parts or hidden == Path.cwd()):
        raise ArgumentError(
            "the command would save outside of its working directory, where the two runs would share their checkpoints",
            key="--directory",
            found=saves_in,
            expected="a directory below the present one",
            remedy=_REMEDY,
        )
    try:
        _link_all(Path.cwd(), working, hidden)
    except OSError as error:
        raise StorageError(
            "cannot make the working directory of a run",
            errno=error.errno,
            file=working,
            remedy=_REMEDY,
        ) from error
    return Program(command, working, home, {"PWD": str(working)}, f"{_REMEDY}, or name that with --directory", timeout)


def _link_all(source: Path, target: Path, hidden: Path) -> None:
    """Makes a directory with links to everything that another one has, but for what is hidden."""
    target.mkdir()
    for entry in os.scandir(source):
        path = source / entry.name
        if path == hidden or (entry.is_dir() and _has_checkpoints(path)):
            continue
        if hidden.is_relative_to(path) or (entry.is_dir() and not os.listdir(path)):
            _link_all(path, target / entry.name, hidden)
        else:
            os.symlink(path, target / entry.name, target_is_directory=entry.is_dir())


def _has_checkpoints(directory: Path) -> bool:
    """Whether a state file lists checkpoints in a directory."""
    try:
        return (directory / STATE_FILE).is_file() and latest_checkpoint(directory) is not None
    except MilepostError:
        return True
