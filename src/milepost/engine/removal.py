"""Removing checkpoints: the index before its data, and the list of the directory kept true."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence

from milepost.bundle import index_path
from milepost.bundle.names import v1_shards
from milepost.engine.leftovers import data_files, data_files_of
from milepost.engine.series import known_checkpoints
from milepost.engine.state_file import STATE_FILE, CheckpointState, PathLike, record_state
from milepost.errors import warn
from milepost.storage import LOCAL_STORAGE, Storage
from milepost.storage.paths import plain_path


def remove_checkpoint(
    checkpoint_prefix: PathLike,
    checkpoint_format_version: int = 2,
    meta_graph_suffix: str = "meta",
    *,
    storage: Storage | None = None,
) -> bool:
    """Removes the files of a checkpoint, its index before its data, and takes it off the list of its directory.

    If the state file names it as the latest, the newest of the others becomes the latest. A state file that names no other
    is removed too. If there is no such checkpoint, a `MilepostWarning` says so.

    Args:
        checkpoint_prefix: The prefix, in which ``*``, ``?`` and ``[`` have no meaning.
        checkpoint_format_version: 2, or 1 for the format before TensorFlow 0.12.
        meta_graph_suffix: Ending of the file with TensorFlow 1's graph.
        storage: Where it is; by default on this machine.

    Returns:
        Whether there was anything to remove.

    Raises:
        StateFileError: The directory's state file is not understood; nothing was removed.
        StorageError: A file could not be removed.

    Example:
        >>> import milepost, os, tempfile
        >>> directory = tempfile.mkdtemp()
        >>> path = milepost.Checkpoint(v=milepost.Variable(1.0)).save(directory + "/ckpt")
        >>> remove_checkpoint(path)
        True
        >>> os.listdir(directory)
        []
    """
    storage = storage or LOCAL_STORAGE
    prefix = plain_path(checkpoint_prefix)
    directory = os.path.dirname(prefix)
    state = known_checkpoints(storage, directory)
    if state is not None and prefix in state.newest_first():
        _take_off_the_list(storage, directory, state, prefix)
    found = remove_files(storage, prefix, checkpoint_format_version, meta_graph_suffix)
    if not found:
        warn(f"there is no checkpoint {prefix}, so none was removed")
    return found


def remove_files(storage: Storage, prefix: str, version: int = 2, meta_graph_suffix: str = "meta") -> bool:
    """Removes the files of a checkpoint, whatever lists it; arguments, result and errors as for `remove_checkpoint`."""
    if version == 1:
        files: Sequence[str] = v1_shards(storage, prefix)
        if storage.is_file(prefix):
            files = (prefix,)
        for path in files:
            storage.remove(path)
        found = bool(files)
    else:
        found = bool(remove_bundles(storage, [prefix]))
    unsharded = re.sub(r"-[\d?]+-of-\d+$", "", prefix)
    storage.remove(f"{unsharded}.{meta_graph_suffix}")
    return found


def is_left(storage: Storage, prefix: str) -> bool:
    """Whether the index or any data of a checkpoint is still there."""
    return storage.is_file(index_path(prefix)) or bool(data_files(storage, prefix))


def _take_off_the_list(storage: Storage, directory: str, state: CheckpointState, prefix: str) -> None:
    paths, times = state.all_model_checkpoint_paths, state.all_model_checkpoint_timestamps
    left = [number for number, path in enumerate(paths) if path != prefix]
    latest = state.model_checkpoint_path if state.model_checkpoint_path != prefix else paths[left[-1]] if left else None
    if latest is None:
        storage.remove(os.path.join(directory, STATE_FILE))
        storage.sync_directory(directory)
        return
    left_over = dataclasses.replace(
        state,
        model_checkpoint_path=latest,
        all_model_checkpoint_paths=tuple(paths[number] for number in left),
        all_model_checkpoint_timestamps=tuple(times[number] for number in left) if len(times) == len(paths) else (),
    )
    record_state(directory, left_over, storage=storage)


def remove_bundles(storage: Storage, prefixes: Sequence[str]) -> list[str]:
    """Removes index and data files of checkpoints for good; each index is gone for good before its first data file is.

    However many they are, their directories are listed and synced only a few times.

    Returns:
        The prefixes of which something was there.

    Raises:
        StorageError: A file could not be removed; those that come after it are left.
    """
    by_directory: dict[str, list[str]] = {}
    for prefix in prefixes:
        by_directory.setdefault(os.path.dirname(prefix), []).append(prefix)
    found = []
    for directory, inside in by_directory.items():
        if not storage.is_directory(directory or "."):
            continue
        data = data_files_of(storage, directory)
        had_index = [prefix for prefix in inside if storage.is_file(index_path(prefix))]
        for prefix in inside:
            storage.remove(index_path(prefix))
        doomed = [path for prefix in inside for path in data.get(os.path.basename(prefix), ())]
        found += [prefix for prefix in inside if prefix in had_index or os.path.basename(prefix) in data]
        if doomed:
            storage.sync_directory(directory)
        for path in doomed:
            storage.remove(path)
        # Were the data to come back after a crash, nothing would tell any more whose it is.
        storage.sync_directory(directory)
    return found
