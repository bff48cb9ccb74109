"""Which checkpoint a user means who names one to pin or to remove: one by its prefix, or by one of its files."""

from __future__ import annotations

import argparse
import os
import shlex

from milepost.bundle import find_prefixes, index_path, parse_data_path
from milepost.bundle.format.names import INDEX_SUFFIX
from milepost.errors import CheckpointNotFoundError, UnsupportedError
from milepost.series.notes import PIN_SUFFIX, pin_path
from milepost.series.removal import is_left
from milepost.series.series import known_checkpoints
from milepost.storage import Storage
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tools.paths import typed_path


def add_prefixes(command: argparse.ArgumentParser) -> None:
    """Adds the checkpoints to the arguments of a command that changes some."""
    command.add_argument(
        "checkpoints",
        metavar="CHECKPOINT",
        nargs="+",
        type=typed_path,
        help="a checkpoint of milepost or TensorFlow: its prefix, such as run/ckpt-100, or one of its files",
    )


def prefixes_of(options: argparse.Namespace) -> list[str]:
    """The prefixes of the checkpoints that `add_prefixes` has parsed, each once. Errors are those of `prefix_of`."""
    return list(dict.fromkeys(map(prefix_of, options.checkpoints)))


def prefix_of(path: str) -> str:
    """The prefix of the checkpoint that a path means. It may be damaged, or have lost a part of its files.

    Args:
        path: Its prefix, or the path of its index, of one of its data files, or of its pin.

    Raises:
        UnsupportedError: This is a directory, or a file of another library.
        CheckpointNotFoundError: Nothing is there: no file of it, and no entry in a state file.
        StateFileError: Nothing is there, and the state file is malformed.
    """
    prefix = os.path.join(*os.path.split(_without_ending(path)))  # as the state file has it, with one slash
    if is_left(DEFAULT_STORAGE, prefix) or DEFAULT_STORAGE.is_file(pin_path(prefix)):
        return prefix
    if DEFAULT_STORAGE.is_directory(path):
        raise _directory_error(path)
    if DEFAULT_STORAGE.is_file(path):
        raise UnsupportedError(
            "only checkpoints of milepost and TensorFlow are pinned and removed",
            file=path,
            found="a file of another kind",
            remedy="delete the file itself, if it is to go",
        )
    if listing_directory(DEFAULT_STORAGE, prefix) is not None:
        return prefix
    raise CheckpointNotFoundError(
        "there is no such checkpoint",
        file=prefix,
        expected=f"{index_path(prefix)}, or an entry in a state file",
        remedy=f"name one that 'milepost ls {shlex.quote(os.path.dirname(prefix) or os.curdir)}' lists",
    )


def listing_directory(storage: Storage, prefix: str) -> str | None:
    """The directory whose state file lists a checkpoint: its own or, if a manager has a ``checkpoint_name`` with a directory, the one above.

    Returns:
        The directory; None if neither lists it.

    Raises:
        StateFileError: The state file of its own directory is malformed.
    """
    own = os.path.dirname(prefix)
    for directory in dict.fromkeys((own, os.path.dirname(own))):
        state = known_checkpoints(storage, directory)
        if state is not None and prefix in state.newest_first():
            return directory
    return None


def _without_ending(path: str) -> str:
    data = parse_data_path(path)
    if data is not None:
        return data.prefix
    for ending in (INDEX_SUFFIX, PIN_SUFFIX):
        if path.endswith(ending) and DEFAULT_STORAGE.is_file(path):
            return path.removesuffix(ending)
    return path


def _directory_error(directory: str) -> UnsupportedError:
    prefixes = find_prefixes(DEFAULT_STORAGE, directory)
    return UnsupportedError(
        "this is a directory, not a checkpoint",
        file=directory,
        expected="the prefix of a checkpoint",
        found=f"a directory with {len(prefixes):,} of them" if prefixes else "a directory without checkpoints",
        remedy=f"name one of its checkpoints, such as {shlex.quote(prefixes[-1])}; 'milepost prune' deletes those that no rule keeps"
        if prefixes
        else "name a checkpoint; milepost deletes no directories",
    )
