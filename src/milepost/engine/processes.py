"""Keeps the processes of one training run from saving to one path at the same time."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import Any, Final

from milepost.adapters.processes import ProcessGroup, process_group
from milepost.engine.options import CheckpointOptions
from milepost.errors import UnsupportedError
from milepost.storage import LocalStorage, MemoryStorage

_REMEDY: Final = (
    "save in one process only, as in `if rank == 0: checkpoint.save(...)`, or give each process a path of its own; "
    "CheckpointOptions(process_local=True) says that this process alone uses the path, as on a disk of its own machine"
)

_lock: Final = threading.Lock()
_own: Final[set[str]] = set()
_identity: Any = None


def claim_path(path: str, options: CheckpointOptions) -> None:
    """Makes a path this process' own among those that `torch.distributed` or `jax.distributed` connects.

    The first process that saves to a path has it from then on; the others are refused. Nothing is coordinated: those that
    are refused would have written over its files.

    Args:
        path: What is saved to: the prefix of a checkpoint, or the directory of a series of them.
        options: The options of the save, with its storage.

    Raises:
        UnsupportedError: Another process of the group has saved there. Nothing was changed.
        AdapterError: The adapter of an imported framework cannot be imported.
    """
    storage = options.storage
    if options.process_local or isinstance(storage, MemoryStorage):
        return
    group = process_group()
    if group is None:
        return
    path = storage.absolute(path) if isinstance(storage, LocalStorage) else path
    place = os.path.realpath(path)
    with _lock:
        own = _own_paths(group)
        if place not in own:
            if not _is_first(group, place):
                raise UnsupportedError(
                    f"another process of {group.library} has saved here, and this one would write over its files; "
                    "nothing was changed",
                    file=path,
                    expected="one process that saves to a path",
                    found=f"rank {group.rank} of {group.size} processes, after another rank",
                    remedy=_REMEDY,
                )
            own.add(place)


def _own_paths(group: ProcessGroup) -> set[str]:
    """What this process has claimed since the processes were connected."""
    global _identity
    if _identity is not group.identity:
        _identity = group.identity
        _own.clear()
    return _own


def _is_first(group: ProcessGroup, place: str) -> bool:
    if group.counters is None:
        return group.rank == 0
    key = hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest()
    try:
        return group.counters.add(f"milepost/saves/{key}", 1) == 1
    except Exception as error:
        raise UnsupportedError(
            f"{group.library} cannot tell whether another process saves to the same path; nothing was changed",
            file=place,
            found=f"rank {group.rank} of {group.size}: {type(error).__name__}: {error}",
            remedy=_REMEDY,
        ) from error
