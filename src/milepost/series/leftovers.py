"""Removes the leftovers of crashed saves. `milepost.series.notes` has the names of the files.

A save claims the names that it will write, with the file that will become its index, and the names of the data that it
replaces. So after a crash at any point, the remaining claims tell exactly what to remove.

Invariants:

- A file that is not named as a temporary file is removed only if a claim of a dead save names it and the visible index
  does not.
- A save is alive while any file with its token is in use; it keeps all of them open until it has ended.
- A process that writes or removes claimed names first makes a claim, and then looks for other claims. If two processes do so
  at the same time, at least one sees the claim of the other, and gives way.
- The announcement of a dead save that reached its commit point is kept: its checkpoint may still have to be listed.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

from milepost.bundle import data_path, index_path, parse_data_path
from milepost.bundle.index import read_header
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, StorageError, warn
from milepost.series.announcement import is_pending
from milepost.series.damage import concerns_file
from milepost.series.liveness import REPLACED, decide, taken_for_dead
from milepost.series.notes import Temporary, claims, new_token, temporaries
from milepost.series.whole_files import read_whole
from milepost.storage import ConditionalStorage, Storage, WritableFile
from milepost.storage.checked import conditional
from milepost.storage.system_errors import is_full
from milepost.table import TableReader


def data_files(storage: Storage, prefix: str) -> dict[int, list[str]]:
    """The data files named after a checkpoint, by the number of shards in their names. Not all need belong to it."""
    directory, name = os.path.split(prefix)
    start = data_path(name, 0, 1).rpartition("-of-")[0].removesuffix("00000")
    paths_by_shards: dict[int, list[str]] = defaultdict(list)
    for other in storage.list(directory):
        data = parse_data_path(other) if other.startswith(start) else None
        if data is not None and data.prefix == name:
            paths_by_shards[data.shards].append(os.path.join(directory, other))
    return dict(paths_by_shards)


def data_files_of(storage: Storage, directory: str) -> dict[str, list[str]]:
    """All data files in a directory, by the name of the checkpoint that they are named after."""
    paths_by_name: dict[str, list[str]] = defaultdict(list)
    for name in storage.list(directory):
        data = parse_data_path(name)
        if data is not None:
            paths_by_name[data.prefix].append(os.path.join(directory, name))
    return paths_by_name


def data_without_index(storage: Storage, directory: str) -> dict[str, list[str]]:
    """The prefixes in a directory that have data files and no index, with these files. What a program saves or removes now is left out."""
    by_name = data_files_of(storage, directory)
    lonely = [name for name in sorted(by_name) if not storage.is_file(os.path.join(directory, index_path(name)))]
    if not lonely:
        return {}
    notes = [*temporaries(storage, directory), *temporaries(storage, directory, of_removals=True)]
    busy = {os.path.basename(note.final).removesuffix(index_path("")) for note in notes if storage.in_use(note.path)}
    return {os.path.join(directory, name): by_name[name] for name in lonely if name not in busy}


def visible_shards(storage: Storage, prefix: str) -> int | None:
    """The number of shards in the visible index of a checkpoint, or None if there is no index.

    Raises:
        CorruptCheckpointError: There is an index, but it is damaged.
        StorageError: There is an index, but it cannot be read, and the reason is not damage.
    """
    if not storage.is_file(index_path(prefix)):
        return None
    try:
        file = storage.open(index_path(prefix))
        try:
            header = read_header(TableReader(file))
        finally:
            file.close()
    except CheckpointNotFoundError:
        return None
    except StorageError as error:
        if not concerns_file(error):
            raise
        raise CorruptCheckpointError("the index cannot be read", file=index_path(prefix)) from error
    if header.num_shards < 1:
        raise CorruptCheckpointError("the index has no number of shards", file=index_path(prefix))
    return int(header.num_shards)


def sweep_leftovers(storage: Storage, directory: str, *, prefix: str | None = None) -> list[str]:
    """Removes what crashed saves left in a directory: temporary files, and claimed data files without an index.

    Files of running saves are kept, in this process or another. So are all files that milepost did not name or claim. Data
    without an index, for example, may be a copy that is not finished.

    Args:
        storage: Where the directory is.
        directory: The directory; one that does not exist has no leftovers.
        prefix: Remove only leftovers of this checkpoint of the directory.

    Returns:
        The paths of the files that were removed.

    Raises:
        StorageError: A file cannot be removed. The next call removes the rest.

    Example:
        >>> from milepost.storage import MemoryStorage
        >>> storage = MemoryStorage()
        >>> storage.create("run/ckpt-1.data-00000-of-00001.milepost-0123456789abcdef.tmp").close()
        >>> sweep_leftovers(storage, "run")
        ['run/ckpt-1.data-00000-of-00001.milepost-0123456789abcdef.tmp']
    """
    saves: dict[str, list[Temporary]] = defaultdict(list)
    for file in temporaries(storage, directory):
        saves[file.token].append(file)
    removed: list[str] = []
    for files in saves.values():
        if prefix is not None and index_path(prefix) not in (file.final for file in files):
            continue
        if any(storage.in_use(file.path) for file in files):
            continue
        claimed = [file for file in files if file.shards is not None]
        store = conditional(storage, directory)
        if store is not None and not _decided(store, claimed, removed):
            continue
        for file in files:
            if file.shards is None and not (file.digest is not None and is_pending(storage, file)):
                storage.remove(file.path)
                removed.append(file.path)
        for file in claimed:
            if store is None and _sweep_claimed(storage, file, removed):
                storage.remove(file.path)
                removed.append(file.path)
    return removed


def claim_data(storage: Storage, prefix: str) -> None:
    """Claims the data of a checkpoint as a dead save would have, so that the next sweep removes it unless an index needs it.

    Raises:
        StorageError: The claim cannot be made.
    """
    for shards in data_files(storage, prefix):
        storage.create(Temporary.claim(prefix, new_token(), shards).path).close()
    storage.sync_directory(os.path.dirname(prefix))


def sweep_quietly(storage: Storage, directory: str) -> None:
    """Calls `sweep_leftovers`, and turns its error into a warning."""
    try:
        sweep_leftovers(storage, directory)
    except StorageError as error:
        warn(f"leftovers of crashed saves could not be removed: {error}")


def sweep_state_files(storage: Storage, state_file: str) -> None:
    """Removes the temporary files of state files that dead processes left.

    Args:
        storage: Where the files are.
        state_file: Path of the state file.

    Raises:
        StorageError: A file cannot be removed.
    """
    for file in temporaries(storage, os.path.dirname(state_file)):
        is_plain = file.shards is None and file.digest is None
        if is_plain and file.final == state_file and not storage.in_use(file.path):
            storage.remove(file.path)


def _decided(storage: ConditionalStorage, claimed: Sequence[Temporary], removed: list[str]) -> bool:
    """Removes the data and the claims of a save in a store that made no progress. Returns False if the save lives, or it cannot be told.

    Args:
        storage: Where they are.
        claimed: The claims of the save.
        removed: Gets the paths of what was removed.
    """
    replaced = [claim for claim in claimed if read_whole(storage, claim.path) == REPLACED]
    own = [claim for claim in claimed if claim not in replaced]
    is_doomed = False
    for claim in own:
        if not taken_for_dead(storage, claim):
            return False
        try:
            visible = visible_shards(storage, claim.final.removesuffix(index_path("")))
        except (CorruptCheckpointError, StorageError):
            return False  # the data may be that of the index
        decision = decide(storage, claim, is_visible=visible == claim.shards)
        if decision is None:
            return False
        is_doomed |= decision
    dropped, others = (own, replaced) if is_doomed else (replaced, own)
    for claim in (*dropped, *others):
        prefix = claim.final.removesuffix(index_path(""))
        data: list[str] = []
        if claim in dropped:
            try:
                if is_doomed or visible_shards(storage, prefix) != claim.shards:
                    data = data_files(storage, prefix).get(claim.shards or 0, [])
            except (CorruptCheckpointError, StorageError):
                return False
        for path in (*data, claim.path):
            storage.remove(path)
            removed.append(path)
    return True


def _sweep_claimed(storage: Storage, dead: Temporary, removed: list[str]) -> bool:
    """Removes the data that a dead save claimed. Returns whether the claim can be removed too."""
    prefix, shards = dead.final.removesuffix(index_path("")), dead.shards or 0
    if shards not in data_files(storage, prefix):
        return True
    claim = Temporary.claim(prefix, new_token(), shards)
    file, is_in_its_stead = _claim_after(storage, claim, dead)
    is_done = False
    with file:
        try:
            others = [each for each in claims(storage, prefix) if each not in (claim, dead) and each.shards == shards]
            is_claimed = is_in_its_stead or storage.is_file(dead.path)
            if any(storage.in_use(other.path) for other in others) or not is_claimed:
                return False
            # A process may have died between the rename of the index that replaced this data and the sync of the directory.
            storage.sync_directory(os.path.dirname(prefix))
            try:
                visible = visible_shards(storage, prefix)
            except (CorruptCheckpointError, StorageError):
                return False  # the data may be that of the index, and the claim may be needed later
            if visible != shards:
                for path in data_files(storage, prefix).get(shards, []):
                    storage.remove(path)
                    removed.append(path)
                # If a crash removed the claim and not the data, nothing would show what the data belongs to.
                storage.sync_directory(os.path.dirname(prefix))
            is_done = True
            return True
        finally:
            if is_done or not is_in_its_stead:
                storage.remove(claim.path)


def _claim_after(storage: Storage, claim: Temporary, dead: Temporary) -> tuple[WritableFile, bool]:
    """Makes a claim to what a dead save claimed. If there is no room for its name, that of the dead claim, which has as many letters, goes first.

    Returns:
        The open claim. Whether the dead one is gone, so that this one must stay until the data is removed.
    """
    try:
        return storage.create(claim.path), False
    except StorageError as error:
        if not is_full(error):
            raise
    storage.remove(dead.path)
    try:
        return storage.create(claim.path), True
    except BaseException:
        with suppress(StorageError):  # the first error is raised
            storage.create(dead.path).close()
        raise
