"""Removes checkpoints, each index before its data, and updates the state file."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from milepost.bundle import index_path
from milepost.bundle.format.names import v1_shards
from milepost.errors import StorageError, printable
from milepost.logs import heard
from milepost.series.leftovers import claim_data, data_files, data_files_of
from milepost.series.notes import temporaries
from milepost.series.pins import is_noted, is_pinned, pinned_error, removal
from milepost.series.series import change_state, known_checkpoints
from milepost.series.state_file import STATE_FILE, CheckpointState
from milepost.storage import Storage
from milepost.storage.system_errors import is_full

_T = TypeVar("_T")


def remove_for_good(storage: Storage, prefix: str, directory: str | None = None) -> bool:
    """Removes a checkpoint from the list and then its files. If the process dies meanwhile, the next manager completes
    the removal. If the index cannot be removed, the checkpoint is listed again.

    Args:
        storage: Where the checkpoint is.
        prefix: The checkpoint.
        directory: The directory of the state file that lists it; by default that of its files.

    Returns:
        Whether a file was removed.

    Raises:
        StateFileError: The state file of the directory is malformed. Nothing was removed.
        StorageError: A file cannot be removed.
        UnsupportedError: The checkpoint is pinned. Nothing was removed.
    """
    directory = os.path.dirname(prefix) if directory is None else directory
    listed = known_checkpoints(storage, directory)  # raises an error if the state file is malformed
    with removal(storage, [prefix], complete=True) as free:
        if not free:
            raise pinned_error(prefix)
        try:
            return bool(_unlist_and(lambda: remove_bundles(storage, free), storage, directory, prefix))
        except BaseException:
            with suppress(StorageError):  # the first error is raised
                _list_again(storage, directory, prefix, listed)
            raise


def finish_removals(storage: Storage, directory: str, listed_in: str | None = None) -> set[str]:
    """Completes the removals that dead processes had begun. The next sweep of leftovers removes data without an index.

    Args:
        storage: Where the directory is.
        directory: The directory of the checkpoints.
        listed_in: The directory of the state file that lists them; by default the same.

    Returns:
        The checkpoints that are gone now.

    Raises:
        StateFileError: The state file of the directory is malformed.
        StorageError: A file cannot be removed.
    """
    listed_in = directory if listed_in is None else listed_in
    gone: set[str] = set()
    for note in temporaries(storage, directory, of_removals=True):
        if storage.in_use(note.path):
            continue
        index = index_path(note.final)
        if not (storage.is_file(index) and is_pinned(storage, note.final)):
            if is_noted(storage, note):
                _unlist_and(lambda index=index: storage.remove(index), storage, listed_in, note.final)  # type: ignore[misc]
                storage.sync_directory(directory)
            if not storage.is_file(index):  # the process died while it removed this, or before it could write the list
                take_off_the_list(storage, listed_in, note.final)
                gone.add(note.final)
                claim_data(storage, note.final)
        storage.remove(note.path)
    return gone


def remove_files(storage: Storage, prefix: str, version: int = 2, meta_graph_suffix: str = "meta") -> bool:
    """Removes the files of a checkpoint, but no entry of it. Arguments, result and errors are those of `milepost.tensorflow1.remove_checkpoint`."""
    if version == 1:
        files: Sequence[str] = v1_shards(storage, prefix)
        if storage.is_file(prefix):
            files = (prefix,)
        for path in files:
            storage.remove(path)
        removed = bool(files)
    else:
        removed = bool(remove_bundles(storage, [prefix]))
    remove_graph(storage, prefix, meta_graph_suffix)
    return removed


def remove_graph(storage: Storage, prefix: str, meta_graph_suffix: str) -> None:
    """Removes the file that holds the graph of TensorFlow 1 of a checkpoint, if there is one."""
    unsharded = re.sub(r"-[\d?]+-of-\d+$", "", prefix)
    storage.remove(f"{unsharded}.{meta_graph_suffix}")


def is_left(storage: Storage, prefix: str) -> bool:
    """Whether the index or a data file of a checkpoint still exists."""
    return storage.is_file(index_path(prefix)) or bool(data_files(storage, prefix))


def take_off_the_list(storage: Storage, directory: str, prefix: str) -> None:
    """Removes the entry of a checkpoint from the state file of a directory. If no other is left, the state file is removed.

    Raises:
        StateFileError: The state file is malformed.
        StorageError: It cannot be written.
    """

    def without(state: CheckpointState | None) -> CheckpointState | None:
        if state is None or prefix not in state.newest_first():
            return None
        paths, times = state.all_model_checkpoint_paths, state.all_model_checkpoint_timestamps
        left = [number for number, path in enumerate(paths) if path != prefix]
        latest = state.model_checkpoint_path
        if latest == prefix and not left:
            storage.remove(os.path.join(directory, STATE_FILE))
            storage.sync_directory(directory)
            return None
        return dataclasses.replace(
            state,
            model_checkpoint_path=paths[left[-1]] if latest == prefix else latest,
            all_model_checkpoint_paths=tuple(paths[number] for number in left),
            all_model_checkpoint_timestamps=tuple(times[number] for number in left) if len(times) == len(paths) else (),
        )

    change_state(storage, directory, without)


def _unlist_and(remove: Callable[[], _T], storage: Storage, directory: str, prefix: str) -> _T:
    """Removes the entry of a checkpoint, and then its files. If there is no room for a new list, the files are removed first.

    Args:
        remove: Removes files of the checkpoint, its index first.
        storage: Where the checkpoint is.
        directory: The directory of the state file.
        prefix: The checkpoint.

    Returns:
        What `remove` returned.
    """
    try:
        take_off_the_list(storage, directory, prefix)
    except StorageError as error:
        if not is_full(error):
            raise
        removed = remove()
        take_off_the_list(storage, directory, prefix)
        return removed
    return remove()


def _list_again(storage: Storage, directory: str, prefix: str, listed: CheckpointState | None) -> None:
    """Puts back the entry of a checkpoint that could not be removed, unless another program has changed the list meanwhile."""
    if listed is None or not storage.is_file(index_path(prefix)):
        return
    others = [path for path in listed.all_model_checkpoint_paths if path != prefix]

    def as_before(state: CheckpointState | None) -> CheckpointState | None:
        is_unchanged = others == [] if state is None else others == list(state.all_model_checkpoint_paths)
        return listed if is_unchanged else None

    change_state(storage, directory, as_before)


def remove_bundles(storage: Storage, prefixes: Sequence[str]) -> list[str]:
    """Removes index and data files of checkpoints durably, each index before its data.

    Their directories are listed and synced only a few times, however many checkpoints there are.

    Returns:
        The prefixes of which a file was removed.

    Raises:
        StorageError: A file cannot be removed. The files after it are left.
    """
    by_directory: dict[str, list[str]] = {}
    for prefix in prefixes:
        by_directory.setdefault(os.path.dirname(prefix), []).append(prefix)
    removed = []
    for directory, inside in by_directory.items():
        if not storage.is_directory(directory or "."):
            continue
        data = data_files_of(storage, directory)
        had_index = [prefix for prefix in inside if storage.is_file(index_path(prefix))]
        for prefix in inside:
            storage.remove(index_path(prefix))
        doomed = [path for prefix in inside for path in data.get(os.path.basename(prefix), ())]
        removed += [prefix for prefix in inside if prefix in had_index or os.path.basename(prefix) in data]
        if doomed:
            storage.sync_directory(directory)
        for path in doomed:
            storage.remove(path)
        # If a crash brought the data back, nothing would show which checkpoint it belongs to.
        storage.sync_directory(directory)
    if (log := heard()) is not None:
        for prefix in removed:
            log.info("removed %s", printable(prefix, one_line=True))
    return removed
