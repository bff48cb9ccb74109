"""The checkpoints of a directory, and the series that they form. A numbered save names them ``<stem>-<number>``.

There are three sources, in this order:

1. The state file. In a directory that was copied or moved, the files in the directory itself are used, even if the state file
   names their former directory.
2. Announcements of processes that were killed after they had saved and before they could list the checkpoint.
3. The names of index files. They are used only to find out whether a series exists, and which older checkpoints it has if all
   listed ones are damaged.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import os
import re
import time
from collections.abc import Callable
from typing import Final

from milepost.bundle import index_path
from milepost.bundle.format.names import INDEX_SUFFIX, find_prefixes
from milepost.errors import CheckpointNotFoundError, StorageError
from milepost.series.announcement import announced, forget
from milepost.series.notes import temporaries
from milepost.series.state_file import (
    STATE_FILE,
    CheckpointState,
    PathLike,
    read_to_change,
    record_state,
    state_of,
)
from milepost.storage import LocalStorage, Storage
from milepost.storage.checked import unchecked
from milepost.storage.default import located
from milepost.storage.paths import has_directory, plain_path, relative_path

_MOST_LISTED: Final = 5
_MOST_SEARCHED: Final = 100
"""Names in a directory that are looked into for directories with checkpoints."""
MOST_CHANGES: Final = 20
"""How often a change of a state file is tried in a store, while other processes change it too."""
_NUMBERED: Final = re.compile(r"(.*)-([0-9]{1,1000})", re.DOTALL)


def split_number(prefix: str) -> tuple[str, int] | None:
    """Stem and number of a checkpoint of a series; None if the prefix has no number.

    Example:
        >>> split_number("run/ckpt-12")
        ('run/ckpt', 12)
    """
    match = _NUMBERED.fullmatch(prefix)
    return (match[1], int(match[2])) if match else None


def is_of_series(prefix: str, stem: str) -> bool:
    """Whether a prefix is ``<stem>-<number>``."""
    return (split_number(prefix) or ("", 0))[0] == stem


def place_of(storage: Storage, directory: str) -> tuple[int, str]:
    """An identity of a directory, to be compared. Two paths of one directory have the same identity, as long as the storage lives."""
    storage = unchecked(located(storage, directory))
    if isinstance(storage, LocalStorage):
        try:
            return 0, os.path.realpath(storage.absolute(directory or "."))
        except ValueError:
            return 0, directory  # no directory can have this path
    return id(storage), os.path.normpath(directory)


def numbered(storage: Storage, stem: str) -> list[str]:
    """The checkpoints of a series that have an index in their directory, in the order of their numbers.

    Args:
        storage: Where the checkpoints are.
        stem: Their common prefix, without the number.

    Raises:
        StorageError: The directory cannot be read.
    """
    directory, name = os.path.split(stem)
    pairs = []
    for other in storage.list(directory):
        if other.startswith(name) and other.endswith(INDEX_SUFFIX):
            prefix = os.path.join(directory, other.removesuffix(INDEX_SUFFIX))
            split = split_number(prefix)
            if split is not None and split[0] == stem:
                pairs.append((split[1], prefix))
    return [prefix for _, prefix in sorted(pairs)]


def older_of_series(storage: Storage, state: CheckpointState) -> list[str]:
    """Checkpoints in the series of the latest one that have lower numbers and are not listed. The newest is first."""
    latest = split_number(state.model_checkpoint_path)
    if latest is None:
        return []
    listed = {state.model_checkpoint_path, *state.all_model_checkpoint_paths}
    below = [prefix for prefix in numbered(storage, latest[0]) if (split_number(prefix) or latest)[1] < latest[1]]
    return [prefix for prefix in reversed(below) if prefix not in listed]


def known_checkpoints(
    storage: Storage, directory: PathLike, latest_filename: str | None = None
) -> CheckpointState | None:
    """The checkpoints that the state file lists and those that killed processes announced, with their present paths.

    Args:
        storage: Where the directory is.
        directory: The directory. Paths in it begin with it as it was passed.
        latest_filename: Name of the state file; by default ``checkpoint``.

    Returns:
        The state as it would be recorded. None if there is neither a state file nor an announced checkpoint.

    Raises:
        StateFileError: The state file is malformed.
        StorageError: The directory cannot be read.
    """
    directory = plain_path(directory)
    state = state_of(storage, directory, latest_filename)
    if state is not None:
        state = _located(storage, directory, state)
    if latest_filename is None:
        for prefix in announced(storage, directory):
            if state is None or prefix not in (state.model_checkpoint_path, *state.all_model_checkpoint_paths):
                state = with_checkpoint(storage, state, prefix)
    return state


def with_checkpoint(storage: Storage, state: CheckpointState | None, prefix: str) -> CheckpointState:
    """The state with a checkpoint that was saved but not recorded."""
    saved = storage.modified(index_path(prefix))
    if state is None:
        # A manager counts a checkpoint as preserved if it has the time of the last preserved one.
        return CheckpointState(prefix, (prefix,), (saved,), saved - 1.0)
    paths, times = list(state.all_model_checkpoint_paths), list(state.all_model_checkpoint_timestamps)
    is_latest = _is_newer(storage, prefix, saved, state.model_checkpoint_path)
    timed = len(times) == len(paths)
    position = len(paths) if is_latest else max(0, len(paths) - 1)
    if timed and not is_latest:
        position = min(position, sum(time <= saved for time in times))
    return dataclasses.replace(
        state,
        model_checkpoint_path=prefix if is_latest else state.model_checkpoint_path,
        all_model_checkpoint_paths=(*paths[:position], prefix, *paths[position:]),
        all_model_checkpoint_timestamps=(*times[:position], saved, *times[position:]) if timed else (),
    )


def _is_newer(storage: Storage, prefix: str, saved: float, other: str) -> bool:
    """Whether a checkpoint was saved after another one. If both have the same time, which file systems count in steps of some
    milliseconds, their numbers decide."""
    modified = _modified(storage, other)
    split, other_split = split_number(prefix), split_number(other)
    if saved != modified or split is None or other_split is None or split[0] != other_split[0]:
        return saved >= modified
    return split[1] >= other_split[1]


def change_state(
    storage: Storage, directory: str, change: Callable[[CheckpointState | None], CheckpointState | None]
) -> None:
    """Changes the state file of a directory. In a store, no change that another process makes at the same time is lost.

    Args:
        storage: Where the directory is.
        directory: The directory.
        change: Returns the new state for the present one, which `known_checkpoints` gives, or None if the file stays. It may be called again.

    Raises:
        StateFileError: The state file is malformed.
        StorageError: The file cannot be read or written. The existing one is unchanged.
    """
    for attempt in itertools.count(1):
        present = read_to_change(storage, directory)
        state = change(known_checkpoints(storage, directory))
        if state is None:
            return
        try:
            record_state(directory, state, storage=storage, present=present)
            return
        except StorageError as error:
            if error.errno != errno.EEXIST or attempt == MOST_CHANGES:
                raise


def list_announced(storage: Storage, directory: str) -> None:
    """Lists the checkpoints that killed processes had saved but not listed.

    Raises:
        StateFileError: The state file is malformed.
        StorageError: The directory cannot be read, or the state file cannot be written.
    """
    if announced(storage, directory):
        change_state(storage, directory, lambda state: state)
    forget(storage, directory)


def is_below(storage: Storage, directory: str, prefix: str) -> bool:
    """Whether the files of a checkpoint lie in this directory or below it."""
    folder = os.path.dirname(prefix)
    if folder == directory:
        return True
    home, path = place_of(storage, directory)[1], place_of(storage, folder)[1]
    return os.path.join(path, "").startswith(os.path.join(home, ""))


def is_inside(storage: Storage, directory: str, prefix: str) -> bool:
    """Whether the files of a checkpoint lie directly in this directory, and are not links to files elsewhere."""
    folder = os.path.dirname(prefix)
    if folder != directory and place_of(storage, folder) != place_of(storage, directory):
        return False
    return not (isinstance(unchecked(located(storage, prefix)), LocalStorage) and os.path.islink(index_path(prefix)))


def no_checkpoint_error(storage: Storage, directory: str) -> CheckpointNotFoundError:
    """The error for a directory without a checkpoint that can be opened."""
    state = state_of(storage, directory)
    others = find_prefixes(storage, directory)
    listed = ", ".join(map(repr, others[-_MOST_LISTED:]))
    there = listed or "no checkpoint"
    if len(others) > _MOST_LISTED:
        there = f"{len(others)} checkpoints, the last of which are {listed}"
    if state is None and others:
        return CheckpointNotFoundError(
            "this directory has no state file (`checkpoint`) that names a checkpoint",
            file=directory or os.curdir,
            found=there,
            remedy=f"pass one of them: {listed}",
        )
    if state is None:
        return _none_in(storage, directory)
    named = state.newest_first()
    missing = [prefix for prefix in named if not _exists(storage, prefix)]
    return CheckpointNotFoundError(
        f"the state file of this directory names checkpoints that {'do not exist' if missing else 'are damaged'}",
        file=os.path.join(directory, STATE_FILE),
        expected=", ".join((missing or named)[:_MOST_LISTED]),
        found=there,
        remedy="copy the files that it names back, or pass the prefix of another checkpoint",
    )


def _none_in(storage: Storage, directory: str) -> CheckpointNotFoundError:
    """The error for a directory in which there is neither a state file nor a checkpoint."""
    unfinished = len(temporaries(storage, directory))
    if unfinished:
        return CheckpointNotFoundError(
            "this directory holds no checkpoint: no save to it has finished",
            file=directory,
            expected="a checkpoint",
            found="1 file of a save that is running or was killed"
            if unfinished == 1
            else f"{unfinished} files of saves that are running or were killed",
            remedy="wait until a save has finished, or start the program again: its next save removes what a killed one has left",
        )
    inside = [os.path.join(directory, name) for name in storage.list(directory)[:_MOST_SEARCHED]]
    below = [each for each in inside if storage.is_directory(each) and find_prefixes(storage, each)]
    return CheckpointNotFoundError(
        "this directory holds no checkpoint, and has no state file (`checkpoint`) that names one",
        file=directory,
        expected="a checkpoint",
        found="files and directories that are none" if inside else "an empty directory",
        remedy=f"pass a directory in it that holds checkpoints: {', '.join(map(repr, below[:_MOST_LISTED]))}"
        if below
        else "name another directory, or a checkpoint",
    )


def _located(storage: Storage, directory: str, state: CheckpointState) -> CheckpointState:
    """The state with prefixes in this directory, for all checkpoints that exist there."""
    _, home = place_of(storage, directory)
    folders: dict[str, str | None] = {directory: directory}

    start = os.path.join(directory, "")

    def located(prefix: str) -> str:
        if prefix.startswith(start) and not has_directory(prefix[len(start) :]):
            return prefix
        folder, name = os.path.split(prefix)
        if folder not in folders:
            inside = relative_path(place_of(storage, folder)[1], home)
            is_outside = inside == os.pardir or inside.startswith(os.pardir + os.sep) or os.path.isabs(inside)
            below = directory if inside == os.curdir else os.path.join(directory, inside)
            folders[folder] = None if is_outside else below
        here = os.path.join(folders[folder] or directory, name)
        return here if folders[folder] is not None or _exists(storage, here) else prefix

    located_state = dataclasses.replace(
        state,
        model_checkpoint_path=located(state.model_checkpoint_path),
        all_model_checkpoint_paths=tuple(map(located, state.all_model_checkpoint_paths)),
    )
    return _with_own_latest(storage, directory, located_state)


def _with_own_latest(storage: Storage, directory: str, state: CheckpointState) -> CheckpointState:
    """The state with a listed checkpoint of the directory itself as the latest, if there is one.

    A copy of a directory may lack the newest checkpoint, which its state file still names in the original directory.
    """
    if is_below(storage, directory, state.model_checkpoint_path):
        return state
    listed = (prefix for prefix in state.newest_first() if is_below(storage, directory, prefix))
    latest = next((prefix for prefix in listed if _exists(storage, prefix)), None)
    return state if latest is None else dataclasses.replace(state, model_checkpoint_path=latest)


def _exists(storage: Storage, prefix: str) -> bool:
    return storage.is_file(index_path(prefix)) or storage.is_file(prefix)


def _modified(storage: Storage, prefix: str) -> float:
    try:
        return storage.modified(index_path(prefix))
    except CheckpointNotFoundError:
        return 0.0


def list_saved(storage: Storage, prefix: str) -> None:
    """Makes a new checkpoint the latest of its directory. The entries of managers stay.

    Managers record when each checkpoint was saved. A list without times does not come from a manager, and is replaced, as
    TensorFlow's ``Checkpoint.save`` does.

    Raises:
        StateFileError: The state file is malformed, or the prefix has no UTF-8 form.
        StorageError: The state file cannot be written. The existing one is unchanged.
    """

    def with_saved(state: CheckpointState | None) -> CheckpointState:
        times = () if state is None else state.all_model_checkpoint_timestamps
        if state is None or not times or len(times) != len(state.all_model_checkpoint_paths):
            return CheckpointState(prefix, (prefix,))
        others = [pair for pair in zip(state.all_model_checkpoint_paths, times, strict=True) if pair[0] != prefix]
        return dataclasses.replace(
            state,
            model_checkpoint_path=prefix,
            all_model_checkpoint_paths=(*(each for each, _ in others), prefix),
            all_model_checkpoint_timestamps=(*(saved for _, saved in others), time.time()),
        )

    change_state(storage, os.path.dirname(prefix), with_saved)
