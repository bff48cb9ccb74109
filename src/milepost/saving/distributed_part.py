"""What a process other than process 0 does in a save of several: it writes its data files, and finds out whether the save was committed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Self

from milepost.bundle import BundleWriter, data_path, index_path
from milepost.bundle.merging import contribution
from milepost.errors import CheckpointNotFoundError, StorageError
from milepost.graph.adapter import Array
from milepost.saving.incremental import Division
from milepost.series.notes import Temporary
from milepost.series.publication import is_published
from milepost.storage import Storage, WritableFile
from milepost.storage.checked import link
from milepost.tensor import PiecewiseArray

_PATIENCE: Final = 10.0
"""Seconds after which a file that another machine has made must be visible here."""
_PAUSE: Final = 0.05


class ProcessFiles:
    """The data files of one process, from their creation until the save has ended.

    The files are in use for as long as this is open. Files that were not published are removed when it closes.

    Args:
        storage: Where to write.
        claim: The file that will become the index, which process 0 has made.
        first: The number of this process' first data file.
        check: Raises an error if process 0 has failed. Process 0 then removes the claim.

    Raises:
        StorageError: The claim does not become visible, because the processes do not share the storage.
    """

    def __init__(self, storage: Storage, claim: Temporary, first: int, check: Callable[[], object]) -> None:
        self._storage = storage
        self._claim = claim
        self._prefix = claim.final.removesuffix(index_path(""))
        self._first = first
        self._files: list[WritableFile] = []
        self._linked: set[int] = set()
        self._wait_for_claim(check)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for file in self._files:
            try:
                self._storage.remove(file.path)  # it has another name if it was published
                file.close()
            except StorageError:
                pass  # It is swept later.
        for shard in self._linked:
            with suppress(StorageError):
                self._storage.remove(self._path(shard))

    def link(self, shard: int, source: str) -> None:
        """Links an existing file as a data file; errors are those of `milepost.storage.LinkingStorage.link`."""
        self._linked.add(shard)
        link(self._storage, source, self._path(shard))

    def unlink(self, shard: int) -> None:
        """Undoes `link`, which may have failed. The data file must then be written."""
        self._storage.remove(self._path(shard))
        self._linked.discard(shard)

    def write(self, division: Division, arrays: Sequence[Array | PiecewiseArray], writer: BundleWriter) -> bytes:
        """Writes all files of this process durably, or links them. Returns what they add to the index.

        Raises:
            StorageError: The files could not be written.
        """
        division.take_over(self, self._first)
        division.add_to(writer, arrays, self._first)
        for shard in range(self._first, self._first + division.files):
            if shard not in self._linked:
                file = self._storage.create(self._path(shard))
                self._files.append(file)
                writer.write_shard(shard, file)
        for file in self._files:
            file.sync()
        if division.files:
            self._storage.sync_directory(os.path.dirname(self._prefix))
        return contribution(writer.entries, writer.pieces)

    def give_up(self) -> bool:
        """Ends the save without process 0, which does not answer.

        This process renames the claim to another name, and process 0 renames it to the index. One of the two succeeds. So either the
        save is committed already, or it cannot be committed any more.

        Returns:
            Whether it is committed.

        Raises:
            StorageError: This cannot be told.
        """
        abandoned = Temporary(self._claim.final, self._claim.token).path
        try:
            self._storage.rename(self._claim.path, abandoned)
        except CheckpointNotFoundError:
            return is_published(self._storage, self._claim)
        self._storage.remove(abandoned)
        return False

    def _path(self, shard: int) -> str:
        """The path of a data file until the save is committed."""
        return Temporary(data_path(self._prefix, shard, self._claim.shards or 0), self._claim.token).path

    def _wait_for_claim(self, check: Callable[[], object]) -> None:
        end = time.monotonic() + _PATIENCE
        while not self._storage.is_file(self._claim.path):
            check()
            if time.monotonic() > end:
                raise StorageError(
                    "the processes do not share the storage: this one does not see what process 0 has just written",
                    file=self._claim.path,
                    expected="a directory that all processes see, such as one of a network file system",
                    found="no such file",
                    remedy="save to a directory on shared storage; for a checkpoint of each process on a disk of its own, pass "
                    "CheckpointOptions(process_local=True)",
                )
            time.sleep(_PAUSE)
