"""Which checkpoints a directory holds, and which of them form a series: ``<stem>-<number>``, as numbered saves name them.

There are three sources, in this order:

1. the state file, whose paths are taken to where the files are now: a directory that was copied or moved is read where it
   is, even if its state file names the place where it was;
2. announcements of processes that were killed after they had saved and before the state file said so;
3. the names of index files. They are looked at only for what the first two cannot tell: whether a series exists, and which
   older checkpoints of it there are when all that are listed are damaged.
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
from typing import Final

from milepost.bundle import index_path
from milepost.bundle.names import INDEX_SUFFIX, find_prefixes
from milepost.engine.announcement import announced, forget
from milepost.engine.state_file import (
    STATE_FILE,
    CheckpointState,
    PathLike,
    get_checkpoint_state,
    record_state,
)
from milepost.errors import CheckpointNotFoundError
from milepost.storage import LocalStorage, Storage
from milepost.storage.paths import has_directory, plain_path, relative_path

_MOST_LISTED: Final = 5
_NUMBERED: Final = re.compile(r"(.*)-([0-9]{1,1000})", re.DOTALL)


def split_number(path: str) -> tuple[str, int] | None:
    """Stem and number of a checkpoint of a series; None if the path has no number.

    Example:
        >>> split_number("run/ckpt-12")
        ('run/ckpt', 12)
    """
    match = _NUMBERED.fullmatch(path)
    return (match[1], int(match[2])) if match else None


def is_of_series(path: str, stem: str) -> bool:
    """Whether a path is ``<stem>-<number>``."""
    return (split_number(path) or ("", 0))[0] == stem


def place_of(storage: Storage, directory: str) -> tuple[int, str]:
    """What tells directories apart, whatever they are called: to be compared, and good as long as the storage lives."""
    if isinstance(storage, LocalStorage):
        try:
            return 0, os.path.realpath(storage.absolute(directory or "."))
        except ValueError:
            return 0, directory  # No directory can have this path.
    return id(storage), os.path.normpath(directory)


def numbered(storage: Storage, stem: str) -> list[str]:
    """The checkpoints of a series that have an index in their directory, in the order of their numbers.

    Args:
        storage: Where they are.
        stem: Their common path, without number.

    Raises:
        StorageError: The directory cannot be read.
    """
    directory, name = os.path.split(stem)
    found = []
    for other in storage.list(directory):
        if other.startswith(name) and other.endswith(INDEX_SUFFIX):
            path = os.path.join(directory, other.removesuffix(INDEX_SUFFIX))
            split = split_number(path)
            if split is not None and split[0] == stem:
                found.append((split[1], path))
    return [path for _, path in sorted(found)]


def older_of_series(storage: Storage, state: CheckpointState) -> list[str]:
    """Checkpoints of the latest one's series that have lower numbers and are not listed, newest first."""
    latest = split_number(state.model_checkpoint_path)
    if latest is None:
        return []
    listed = {state.model_checkpoint_path, *state.all_model_checkpoint_paths}
    below = [path for path in numbered(storage, latest[0]) if (split_number(path) or latest)[1] < latest[1]]
    return [path for path in reversed(below) if path not in listed]


def known_checkpoints(
    storage: Storage, directory: PathLike, latest_filename: str | None = None
) -> CheckpointState | None:
    """What the state file of a directory lists and killed processes had saved, under the paths where the files are now.

    Args:
        storage: Where the directory is.
        directory: The directory; paths in it are joined to it as it was passed.
        latest_filename: Name of the state file; by default ``checkpoint``.

    Returns:
        The state as it would be recorded; None if there is neither a state file nor a checkpoint that was announced.

    Raises:
        StateFileError: The state file is not understood.
        StorageError: The directory cannot be read.
    """
    directory = plain_path(directory)
    state = get_checkpoint_state(directory, latest_filename, storage=storage)
    if state is not None:
        state = _located(storage, directory, state)
    if latest_filename is None:
        for path in announced(storage, directory):
            if state is None or path not in (state.model_checkpoint_path, *state.all_model_checkpoint_paths):
                state = with_checkpoint(storage, state, path)
    return state


def with_checkpoint(storage: Storage, state: CheckpointState | None, path: str) -> CheckpointState:
    """The state after a save of ``path`` that had not come to recording it."""
    saved = storage.modified(index_path(path))
    if state is None:
        # A manager takes what was saved in the very instant of the last preserved checkpoint for preserved, too.
        return CheckpointState(path, (path,), (saved,), saved - 1.0)
    paths, times = list(state.all_model_checkpoint_paths), list(state.all_model_checkpoint_timestamps)
    is_latest = saved >= _modified(storage, state.model_checkpoint_path)
    timed = len(times) == len(paths)
    place = len(paths) if is_latest else max(0, len(paths) - 1)
    if timed and not is_latest:
        place = min(place, sum(time <= saved for time in times))
    return dataclasses.replace(
        state,
        model_checkpoint_path=path if is_latest else state.model_checkpoint_path,
        all_model_checkpoint_paths=(*paths[:place], path, *paths[place:]),
        all_model_checkpoint_timestamps=(*times[:place], saved, *times[place:]) if timed else (),
    )


def list_announced(storage: Storage, directory: str) -> None:
    """Puts on the list what killed processes had saved and not listed.

    Raises:
        StateFileError: The state file is not understood.
        StorageError: The directory cannot be read, or the state file cannot be written.
    """
    if announced(storage, directory):
        state = known_checkpoints(storage, directory)
        if state is not None:
            record_state(directory, state, storage=storage)
    forget(storage, directory)


def is_below(storage: Storage, directory: str, path: str) -> bool:
    """Whether a checkpoint's files lie in this directory, or in one below it."""
    folder = os.path.dirname(path)
    if folder == directory:
        return True
    home, place = place_of(storage, directory)[1], place_of(storage, folder)[1]
    return os.path.join(place, "").startswith(os.path.join(home, ""))


def is_inside(storage: Storage, directory: str, path: str) -> bool:
    """Whether a checkpoint's files lie in this very directory, and are not links to files elsewhere."""
    folder = os.path.dirname(path)
    if folder != directory and place_of(storage, folder) != place_of(storage, directory):
        return False
    return not (isinstance(storage, LocalStorage) and os.path.islink(index_path(path)))


def no_checkpoint_error(storage: Storage, directory: str) -> CheckpointNotFoundError:
    """Why a directory has no checkpoint that could be opened: what its state file says, and what is there."""
    state = get_checkpoint_state(directory, storage=storage)
    others = find_prefixes(storage, directory)
    listed = ", ".join(map(repr, others[-_MOST_LISTED:]))
    there = listed or "no checkpoint"
    if state is None:
        return CheckpointNotFoundError(
            "this directory has no `checkpoint` file that names a checkpoint",
            file=directory,
            found=there,
            remedy=f"pass one of them: {listed}" if others else "name another directory; there is none in this one",
        )
    named = state.newest_first()
    missing = [path for path in named if not _exists(storage, path)]
    return CheckpointNotFoundError(
        f"the `checkpoint` file of this directory names checkpoints that {'are not there' if missing else 'are damaged'}",
        file=os.path.join(directory, STATE_FILE),
        expected=", ".join((missing or named)[:_MOST_LISTED]),
        found=there,
        remedy="restore the files that it names from a copy, or pass the prefix of another checkpoint",
    )


def _located(storage: Storage, directory: str, state: CheckpointState) -> CheckpointState:
    """The state with every path as this directory calls it, where the checkpoint is there."""
    _, home = place_of(storage, directory)
    folders: dict[str, str | None] = {directory: directory}

    start = os.path.join(directory, "")

    def located(path: str) -> str:
        if path.startswith(start) and not has_directory(path[len(start) :]):
            return path
        folder, name = os.path.split(path)
        if folder not in folders:
            inside = relative_path(place_of(storage, folder)[1], home)
            is_outside = inside == os.pardir or inside.startswith(os.pardir + os.sep) or os.path.isabs(inside)
            below = directory if inside == os.curdir else os.path.join(directory, inside)
            folders[folder] = None if is_outside else below
        here = os.path.join(folders[folder] or directory, name)
        return here if folders[folder] is not None or _exists(storage, here) else path

    located_state = dataclasses.replace(
        state,
        model_checkpoint_path=located(state.model_checkpoint_path),
        all_model_checkpoint_paths=tuple(map(located, state.all_model_checkpoint_paths)),
    )
    return _with_own_latest(storage, directory, located_state)


def _with_own_latest(storage: Storage, directory: str, state: CheckpointState) -> CheckpointState:
    """The state, with a checkpoint of the directory itself as the latest if it has one that is listed.

    A copy of a directory may lack the newest checkpoint, which its list still names where the original is.
    """
    if is_below(storage, directory, state.model_checkpoint_path):
        return state
    listed = (path for path in state.newest_first() if is_below(storage, directory, path))
    own = next((path for path in listed if _exists(storage, path)), None)
    return state if own is None else dataclasses.replace(state, model_checkpoint_path=own)


def _exists(storage: Storage, prefix: str) -> bool:
    return storage.is_file(index_path(prefix)) or storage.is_file(prefix)


def _modified(storage: Storage, prefix: str) -> float:
    try:
        return storage.modified(index_path(prefix))
    except CheckpointNotFoundError:
        return 0.0


def list_saved(storage: Storage, path: str) -> None:
    """Makes a checkpoint that was just saved the latest of its directory, beside what managers have listed there.

    Managers record when each checkpoint was saved. A list without times is not a manager's, and is replaced, as
    TensorFlow's ``Checkpoint.save`` does.

    Raises:
        StateFileError: The state file is not understood, or the path has no UTF-8 form.
        StorageError: The state file could not be written; what was there before still is.
    """
    directory = os.path.dirname(path)
    state = known_checkpoints(storage, directory)
    times = () if state is None else state.all_model_checkpoint_timestamps
    if state is None or not times or len(times) != len(state.all_model_checkpoint_paths):
        record_state(directory, CheckpointState(path, (path,)), storage=storage)
        return
    others = [pair for pair in zip(state.all_model_checkpoint_paths, times, strict=True) if pair[0] != path]
    listed = dataclasses.replace(
        state,
        model_checkpoint_path=path,
        all_model_checkpoint_paths=(*(each for each, _ in others), path),
        all_model_checkpoint_timestamps=(*(saved for _, saved in others), time.time()),
    )
    record_state(directory, listed, storage=storage)
