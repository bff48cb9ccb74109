"""Which series of checkpoints a `Checkpoint` may add to: its own, and those of directories that it has restored from.

A run that forgot to restore would otherwise begin at number 1, take the numbers of an earlier run, and push that run's
checkpoints out of the list of those that are kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from milepost.bundle import index_path
from milepost.engine.series import numbered, place_of, split_number
from milepost.errors import CheckpointExistsError
from milepost.storage import LocalStorage, Storage

_MOST_LISTED = 3


class SeriesGuard:
    """Remembers where one `Checkpoint` has restored from, and what it has saved."""

    def __init__(self) -> None:
        self._storages: list[Storage] = []  # kept: places are told apart by their storage's identity
        self._restored: set[tuple[int, str]] = set()
        self._own: set[tuple[tuple[int, str], str]] = set()

    def restored(self, storage: Storage, path: str) -> None:
        """Notes that a checkpoint was restored. From now on every series of its directory may be added to."""
        self._keep(storage)
        self._restored.add(place_of(storage, os.path.dirname(path)))

    def on_commit(self, storage: Storage, path: str) -> Callable[[], None]:
        """What notes, once it is called, that a numbered checkpoint was saved, and its series is this run's own."""
        self._keep(storage)
        series = self._series(storage, path)
        return lambda: self._own.add(series)

    def is_own(self, storage: Storage, path: str) -> bool:
        """Whether this `Checkpoint` has saved a checkpoint of this series."""
        return self._series(storage, path) in self._own

    def check(self, storage: Storage, path: str) -> None:
        """Makes sure that a checkpoint may be saved.

        Raises:
            CheckpointExistsError: Its series is another run's.
        """
        directory = os.path.dirname(path)
        if self.is_own(storage, path) or place_of(storage, directory) in self._restored:
            return
        stem, _ = split_number(path) or (path, 0)
        others = numbered(storage, stem) or [each for each in (path,) if storage.is_file(index_path(each))]
        if others:
            names = ", ".join(os.path.basename(each) for each in others[-_MOST_LISTED:])
            raise CheckpointExistsError(
                "the directory has checkpoints of this name, from a run that this one has not restored",
                file=path,
                expected=f"no checkpoints named {os.path.basename(stem)} in {directory or '.'}, or a run that restored the latest of them",
                found=names if len(others) <= _MOST_LISTED else f"{len(others)}, up to {names}",
                remedy=(
                    "restore the latest checkpoint first to go on with that run; otherwise save to another directory or "
                    "name, or pass CheckpointOptions(overwrite=True) if the old checkpoints may go"
                ),
            )

    def _series(self, storage: Storage, path: str) -> tuple[tuple[int, str], str]:
        stem, _ = split_number(path) or (path, 0)
        return place_of(storage, os.path.dirname(path)), os.path.basename(stem)

    def _keep(self, storage: Storage) -> None:
        if not isinstance(storage, LocalStorage) and not any(each is storage for each in self._storages):
            self._storages.append(storage)
