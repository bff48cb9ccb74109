"""A guard of series: a `Checkpoint` may add to its own series, and to those of directories that it has restored from.

Without it, a run that forgot to restore would begin at number 1, use the numbers of an earlier run again, and cause the
deletion of that run's checkpoints.

A directory may be moved while the program runs, with a link to it in its place. It is still the same one, which its device and inode
show, together with a checkpoint in it that this run has saved or restored. The inode alone would not do: a file system gives that of a
removed directory to a new one.

A save checks twice: when it begins, and right before the commit point. Until then it holds the claim of its checkpoint.
So if several processes begin a series with the same checkpoint at the same time, one saves it and the others are
refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from milepost.bundle import index_path
from milepost.errors import CheckpointExistsError
from milepost.series.series import numbered, place_of, split_number
from milepost.storage import LocalStorage, Storage
from milepost.storage.checked import unchecked
from milepost.storage.default import located

_MOST_LISTED: Final = 3


class _Witness(NamedTuple):
    """A checkpoint by which a directory is recognised at another path.

    Attributes:
        name: Its name in the directory.
        files: What `_files_of` has returned for it. None if no directory is recognised by it.
    """

    name: str
    files: tuple[int, ...] | None

    def is_in(self, storage: Storage, directory: str) -> bool:
        """Whether a directory is the one in which the checkpoint was."""
        return self.files is not None and self.files == _files_of(storage, os.path.join(directory, self.name))


class SeriesGuard:
    """Remembers the directories that a `Checkpoint` has restored from, and the series that it has saved."""

    def __init__(self) -> None:
        self._storages: list[Storage] = []  # kept alive, because the identities of storages distinguish directories
        self._restored: dict[tuple[int, str], _Witness] = {}
        self._own: dict[tuple[tuple[int, str], str], _Witness] = {}

    def restored(self, storage: Storage, prefix: str) -> None:
        """Records that a checkpoint was restored. From now on, saves may add to every series in its directory."""
        self._keep(storage)
        self._restored[place_of(storage, os.path.dirname(prefix))] = _witness(storage, prefix)

    def on_commit(self, storage: Storage, prefix: str) -> Callable[[], None]:
        """Returns a function that records a numbered checkpoint as saved, so that its series is this run's own."""
        self._keep(storage)
        series = self._series(storage, prefix)

        def committed() -> None:
            self._own[series] = _witness(storage, prefix)

        return committed

    def is_own(self, storage: Storage, prefix: str) -> bool:
        """Whether this `Checkpoint` has saved a checkpoint of this series."""
        series, directory = self._series(storage, prefix), os.path.dirname(prefix)
        return series in self._own or any(
            stem == series[1] and witness.is_in(storage, directory) for (_, stem), witness in self._own.items()
        )

    def check(self, storage: Storage, prefix: str, *, at_commit: bool = False) -> None:
        """Checks that a checkpoint may be saved.

        Args:
            storage: Where the checkpoint will be saved.
            prefix: The checkpoint.
            at_commit: Whether a check when the save began found nothing, so that the other run has begun since then.

        Raises:
            CheckpointExistsError: Its series belongs to another run.
        """
        directory = os.path.dirname(prefix)
        if self.is_own(storage, prefix) or self._has_restored(storage, directory):
            return
        stem, _ = split_number(prefix) or (prefix, 0)
        others = numbered(storage, stem) or [each for each in (prefix,) if storage.is_file(index_path(each))]
        if others and at_commit:
            raise CheckpointExistsError(
                "another run began to save checkpoints of this name at the same time; this checkpoint was not saved",
                file=prefix,
                expected=f"no checkpoints named {os.path.basename(stem)} in {directory or '.'}, as when this save began",
                found=_named(others),
                remedy=(
                    "let one process save, or give each process a directory or name of its own; docs/several_processes.md says how "
                    "processes save one checkpoint together"
                ),
            )
        if others:
            raise CheckpointExistsError(
                "the directory has checkpoints of this name from another run, and this run has restored none of them",
                file=prefix,
                expected=f"no checkpoints named {os.path.basename(stem)} in {directory or '.'}, or a run that restored the latest of them",
                found=_named(others),
                remedy=(
                    "restore the latest checkpoint first to continue that run; otherwise save to another directory or "
                    "name, or pass CheckpointOptions(overwrite=True) if the old checkpoints may be deleted"
                ),
            )

    def _has_restored(self, storage: Storage, directory: str) -> bool:
        """Whether a checkpoint of this directory was restored."""
        return place_of(storage, directory) in self._restored or any(
            witness.is_in(storage, directory) for witness in self._restored.values()
        )

    def _series(self, storage: Storage, prefix: str) -> tuple[tuple[int, str], str]:
        stem, _ = split_number(prefix) or (prefix, 0)
        return place_of(storage, os.path.dirname(prefix)), os.path.basename(stem)

    def _keep(self, storage: Storage) -> None:
        storage = unchecked(storage)
        if not isinstance(storage, LocalStorage) and not any(each is storage for each in self._storages):
            self._storages.append(storage)


def _witness(storage: Storage, prefix: str) -> _Witness:
    return _Witness(os.path.basename(prefix), _files_of(storage, prefix))


def _files_of(storage: Storage, prefix: str) -> tuple[int, ...] | None:
    """The device and inode of the directory of a checkpoint, the inode of its index, and when that was written.

    A rename of the directory changes none of them. None if the checkpoint is not there, or not on a file system.
    """
    storage = unchecked(located(storage, prefix))
    if not isinstance(storage, LocalStorage):
        return None
    try:
        index = storage.absolute(index_path(prefix))
        directory, file = os.stat(os.path.dirname(index)), os.stat(index)
    except (OSError, ValueError):
        return None
    return directory.st_dev, directory.st_ino, file.st_ino, file.st_mtime_ns


def _named(checkpoints: Sequence[str]) -> str:
    """The names of the last checkpoints, for an error."""
    names = [os.path.basename(each) for each in checkpoints[-_MOST_LISTED:]]
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return (
        listed
        if len(checkpoints) <= _MOST_LISTED
        else f"{len(checkpoints)} checkpoints, the last of which are {listed}"
    )
