"""Removes checkpoints that a user names, as `CheckpointManager.delete` does. Everything is tried on no file before a file changes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from milepost.bundle import index_path
from milepost.errors import StorageError, UnsupportedError
from milepost.series.pins import is_pinned, pin, unpin
from milepost.series.removal import remove_for_good
from milepost.series.series import known_checkpoints
from milepost.storage import Storage
from milepost.storage.default import DEFAULT_STORAGE
from milepost.tools.dry_run import DryRunStorage
from milepost.tools.inventory import size_of
from milepost.tools.prefixes import listing_directory
from milepost.tools.users import FileUser, is_being_saved, is_directory_saved_to, readers_of


@dataclass(frozen=True, slots=True)
class Removal:
    """What is known of a checkpoint that is to be removed.

    Attributes:
        path: The checkpoint.
        directory: The directory of the state file that lists it, or would.
        size: The bytes of all its files.
        is_listed: Whether the state file lists it.
        is_pinned: Whether it is pinned.
        readers: The other processes that have its files open.
        is_run_alive: Whether a process saves to its directory now.
    """

    path: str
    directory: str
    size: int
    is_listed: bool
    is_pinned: bool
    readers: tuple[FileUser, ...] = ()
    is_run_alive: bool = False


def removals_of(prefixes: Sequence[str]) -> list[Removal]:
    """Looks at the checkpoints that are to be removed.

    Raises:
        UnsupportedError: A process saves one of them now.
        StateFileError: A state file is malformed.
        StorageError: A directory cannot be read.
    """
    readers = readers_of(prefixes)
    return [_removal_of(prefix, readers[prefix]) for prefix in prefixes]


def _removal_of(prefix: str, readers: Sequence[FileUser]) -> Removal:
    if is_being_saved(prefix):
        raise UnsupportedError(
            "a program saves this checkpoint now, so it was not removed",
            file=prefix,
            found="files of a save that is running",
            remedy="wait until it is saved; if no program runs, 'milepost repair' of the directory removes what a killed one has left",
        )
    listed_in = listing_directory(DEFAULT_STORAGE, prefix)
    return Removal(
        prefix,
        os.path.dirname(prefix) if listed_in is None else listed_in,
        size_of(prefix),
        listed_in is not None,
        is_pinned(DEFAULT_STORAGE, prefix),
        tuple(readers),
        is_directory_saved_to(prefix),
    )


def remove_all(removals: Sequence[Removal], *, with_pins: bool, is_dry: bool) -> dict[str, str | None]:
    """Removes checkpoints. If one of them is refused, such as one that is pinned, none is removed.

    Args:
        removals: The checkpoints.
        with_pins: Whether to remove pinned ones, too.
        is_dry: Whether to change no file.

    Returns:
        The latest checkpoint that is left in each directory; None if its state file lists no other.

    Raises:
        UnsupportedError: One is pinned, and ``with_pins`` is false. No file has changed.
        StorageError: A file cannot be removed. Those before it are.
    """
    latest = _removed(DryRunStorage(), removals, with_pins=with_pins)
    return latest if is_dry else _removed(DEFAULT_STORAGE, removals, with_pins=with_pins)


def _removed(storage: Storage, removals: Sequence[Removal], *, with_pins: bool) -> dict[str, str | None]:
    for each in removals:
        if with_pins and each.is_pinned:
            _remove_with_pin(storage, each)
        else:
            remove_for_good(storage, each.path, each.directory)
    states = {each.directory: known_checkpoints(storage, each.directory) for each in removals}
    return {directory: None if state is None else state.model_checkpoint_path for directory, state in states.items()}


def _remove_with_pin(storage: Storage, removal: Removal) -> None:
    """Removes a checkpoint that is pinned. If it cannot be removed, it is pinned again."""
    unpin(storage, removal.path)
    try:
        remove_for_good(storage, removal.path, removal.directory)
    except BaseException:
        if storage.is_file(index_path(removal.path)):
            with suppress(StorageError):  # the first error is raised
                pin(storage, removal.path)
        raise
