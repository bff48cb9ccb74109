"""Commits: files become visible whole and durable, or not at all.

A save of the checkpoint P takes these steps, in this order. Steps 1 and 2 are durable after step 3. Each later step is durable before
the next begins. ``docs/durability.md`` has the same numbers, and says what a crash at each step leaves::

    1. claim       the names of the data: make P.index.milepost-<token>-of-NNNNN.tmp, which becomes the index
    2. write       P.data-SSSSS-of-NNNNN.milepost-<token>.tmp, then the index, and sync each. An incremental save links data files
                   of an earlier checkpoint to such names
    3. announce    If there is a checkpoint P, claim its data too. Announce a numbered save (`BeforeCommit`). Sync the directory:
                   after this, no crash can lose a claim and keep the data
    4. data        Rename the data to P.data-SSSSS-of-NNNNN, which no index names yet. Sync the directory
    5. index       Rename the index: THE COMMIT POINT
    6. durable     Sync the directory: the save may return
    7. replaced    If there was a checkpoint P, remove its data
    8. list        Write the state file: `milepost.saving.run_save`. It is written by `commit_file`
    9. delete      Delete what a manager does not keep: `milepost.manager.publishing`
    10. tidy up    Remove the notes of deletions and the announcement

This module takes steps 1 to 7. In an object store some of them differ (`milepost.series.publication`). Invariants:

- An index that is visible has all its data, whole and durable: new data never takes the names of the visible index's
  data, because the number of shards is part of the name. If that number is taken, an empty shard is added.
- Before step 5 a crash leaves what was there before; after it, the new checkpoint. After step 6 it survives a power cut.
- A data file is never written again after it has its final name, so files of several checkpoints may be one file
  (`milepost.saving.incremental`). A deletion removes only a name.
- Leftovers are recognised by their names (`milepost.series.leftovers`).
- A failed sync of a file is not tried again, because the kernel may have dropped the pages and marked them as clean.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, NamedTuple, Self

from milepost.bundle import BundleWriter, data_path
from milepost.bundle.layout import ALIGNMENT
from milepost.errors import (
    AfterCommitError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    StorageError,
    warn,
)
from milepost.series.leftovers import data_files, sweep_leftovers, visible_shards
from milepost.series.notes import Temporary, claims, new_token
from milepost.series.publication import publication_of
from milepost.series.whole_files import vanished, write_file
from milepost.storage import Storage, WritableFile
from milepost.storage.checked import link
from milepost.storage.default import located

_PATIENCE: Final = 10.0
"""Seconds to wait for another save of the same checkpoint. Without file locks, a dead save also counts as running."""


class BeforeCommit(NamedTuple):
    """Functions that a save calls before its commit point. If one of them raises an error, the save ends with that error.

    Attributes:
        announce: It runs in step 3, before the directory is synced. It gets the token of the save and the bytes of its index, while
            the save holds the claim of its checkpoint. Files that it makes are durable before the commit point.
        begin: It runs right before step 5. If the save fails before that, it has not committed anything.
    """

    announce: Callable[[str, bytes], object]
    begin: Callable[[], object]


def commit_file(storage: Storage, path: str, data: bytes, present: bytes | None = None) -> None:
    """Writes a small file, or replaces it. When this returns, the file survives a power cut.

    Args:
        storage: Where to write.
        path: The file. Missing directories are made.
        data: The whole content.
        present: What was read of the file; None if it was not there. A store refuses to write it, with ``errno`` EEXIST, if that is not so any more.

    Raises:
        StorageError: The file cannot be written, and the existing file is unchanged. If only the last step failed, the new
            file is visible, but a power cut may lose it.

    Example:
        >>> from milepost.storage import MemoryStorage
        >>> storage = MemoryStorage()
        >>> commit_file(storage, "run/checkpoint", b"text")
        >>> storage.open("run/checkpoint").read(0, 4)
        b'text'
    """
    storage.make_directory(os.path.dirname(path))
    write_file(storage, path, data, present)


def not_durable(prefix: str, error: BaseException) -> AfterCommitError:
    """The error for a checkpoint that is committed, but that a power cut may lose.

    Args:
        prefix: The checkpoint.
        error: Why the commit could not be made durable.
    """
    return AfterCommitError(
        f"the checkpoint is saved, but a power cut may lose it: {getattr(error, 'problem', error)}",
        errno=getattr(error, "errno", None),
        file=prefix,
        remedy=getattr(error, "remedy", None)
        or "check the disk; the next save to this directory makes this checkpoint durable too",
    )


class BundleCommit:
    """The files of one save, from the claim to the commit. It removes files that it does not publish.

    An existing checkpoint is replaced atomically. Its data files are removed, but processes that have them open can
    still read them.

    Args:
        storage: Where to write.
        prefix: Path of the files, without ending. Missing directories are made.
        wanted: The number of data files. If an existing checkpoint with as many is replaced, there is one more, which is
            empty.

    Attributes:
        number: The number of data files that is in their names, which may be larger than how many there are.
        data: The data files. All of them are written or linked before `publish`.
        linked: The numbers of those that are links to existing files.
        claim: The file that becomes the index. Whoever removes it before the commit point keeps the save from being committed.

    Raises:
        StorageError: The files cannot be written. Existing files are unchanged.
        AfterCommitError: The new checkpoint is visible, but a power cut may lose it.

    Example:
        >>> import numpy as np
        >>> from milepost.storage import MemoryStorage
        >>> storage = MemoryStorage()
        >>> with BundleCommit(storage, "run/ckpt-1") as commit:
        ...     writer = commit.writer()
        ...     writer.add("x", np.float32([1, 2]))
        ...     commit.write(writer)
        >>> storage.list("run")
        ['ckpt-1.data-00000-of-00001', 'ckpt-1.index']
    """

    def __init__(self, storage: Storage, prefix: str, wanted: int = 1) -> None:
        self._storage = storage = located(storage, prefix)
        self._prefix = prefix
        self._directory = os.path.dirname(prefix)
        self._publication = publication_of(storage, prefix)
        self._token = new_token()
        self._open: list[WritableFile] = []
        self._unsynced: list[WritableFile] = []
        self._moved: list[str] = []
        self._replaced: list[Temporary] = []
        self._published = False
        self.linked: set[int] = set()
        self.data: list[Temporary] = []
        storage.make_directory(self._directory)
        try:
            self.claim, self._index = self._claim_names(wanted)
            self.number = self.claim.shards or 0
            files = self._publication.files(wanted, self.number)
            self.data += [Temporary(data_path(prefix, shard, self.number), self._token) for shard in range(files)]
            self._publication.join()
        except BaseException as error:  # Ctrl-C, whose traceback may keep this object
            for file in self._open:
                _remove_quietly(storage, [file.path])
                file.close()
            if isinstance(error, CheckpointNotFoundError):
                raise vanished(error) from error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._published:
            self._remove_unpublished()
        for file in self._open:
            try:
                file.close()
            except StorageError:
                pass  # The file has been synced, or the save has failed.
        if isinstance(error, CheckpointNotFoundError):
            raise vanished(error) from error

    def create(self, temporary: Temporary) -> WritableFile:
        """A new file of the save. It stays open until the save ends, so that other processes see that the save is alive."""
        path = self._publication.working_path(temporary)
        if path == temporary.final:
            self._moved.append(path)
        self._open.append(self._storage.create(path))  # in one line, so that Ctrl-C leaves no file that is not removed
        file = self._open[-1]
        self._unsynced.append(file)
        return file

    def writer(self, alignment: int = ALIGNMENT) -> BundleWriter:
        """A writer of the data files and the index.

        Args:
            alignment: Tensors begin at multiples of it.
        """
        return BundleWriter(shards=len(self.data), alignment=alignment, named=self.number)

    def sync_data(self) -> None:
        """Makes the files durable that `create` has made and that were written since. `publish` does this too, so that a save may do it
        while it would otherwise wait.
        """
        while self._unsynced:
            self._unsynced.pop(0).sync()

    def link(self, shard: int, source: str) -> None:
        """Links an existing file as a data file, and makes its bytes durable.

        Raises:
            CheckpointNotFoundError: The existing file is no longer there.
            StorageError: The storage cannot link it.
        """
        self.linked.add(shard)
        link(self._storage, source, self.data[shard].path)

    def unlink(self, shard: int) -> None:
        """Undoes `link`, which may have failed. The data file must then be written."""
        self._storage.remove(self.data[shard].path)
        self.linked.discard(shard)

    def write(self, writer: BundleWriter, before_commit: BeforeCommit | None = None) -> None:
        """Writes the data files that are not linked and the index. When this returns, the checkpoint survives a power cut.

        Args:
            writer: Has all tensors, for as many data files as `data` has.
            before_commit: What to call before the commit point.
        """
        for shard, temporary in enumerate(self.data):
            if shard not in self.linked:
                writer.write_shard(shard, self.create(temporary))
        self.publish(writer.index(), before_commit)

    def publish(self, index: bytes, before_commit: BeforeCommit | None = None) -> None:
        """Carries out the rest of step 2, from the sync of the data on, and steps 3 to 7.

        Args:
            index: The bytes of the index.
            before_commit: As for `write`.
        """
        storage, directory = self._storage, self._directory
        self.sync_data()
        self._publication.prepare(self._index, index)
        for shards in _counts_in_use(storage, self._prefix):
            claim = Temporary.claim(self._prefix, self._token, shards)
            self._replaced.append(claim)  # first, so that Ctrl-C leaves no claim that is not removed
            self._publication.claim_replaced(claim, self._open)
        if before_commit is not None:
            before_commit.announce(self._token, index)
        storage.sync_directory(directory)
        self._publication.name_data(self.data, self._moved)
        # From here on, a reader may see the new index, even if the rename fails: over a network the server may have
        # carried it out.
        if before_commit is not None:
            before_commit.begin()
        self._published = True
        try:
            self._publication.commit(self.claim, index)
        except BaseException:
            with suppress(StorageError):  # if it cannot be told, the save counts as published
                self._published = self._publication.is_committed(self.claim, index)
            raise
        try:
            self._published = self._publication.confirm(self.claim, index)
        except AfterCommitError:
            raise
        except StorageError as error:
            raise not_durable(self._prefix, error) from error
        if not self._published:
            raise StorageError(
                "another process has taken this save for dead, because it made no progress; nothing was saved",
                errno=errno.ESTALE,
                file=self._prefix,
                remedy="save again; for a slow network, pass ObjectStorage(url, lease=seconds)",
            )
        if self._replaced:
            self._remove_replaced()
        with suppress(StorageError):
            self._publication.end(self.claim)

    def _claim_names(self, wanted: int) -> tuple[Temporary, WritableFile]:
        storage, prefix = self._storage, self._prefix
        deadline = time.monotonic() + _PATIENCE
        taken: set[int] = set()
        while True:
            avoid = taken | _counts_in_use(storage, prefix)
            shards = self._publication.number(wanted, avoid)
            claim = Temporary.claim(prefix, self._token, shards)
            self._open.append(
                storage.create(claim.path)
            )  # in one line, so that the constructor removes it if Ctrl-C comes
            others = [other for other in claims(storage, prefix) if other != claim]
            living = [other for other in others if storage.in_use(other.path)]
            taken = {other.shards or 0 for other in others}
            is_free = shards not in taken | _counts_in_use(storage, prefix)
            is_late = time.monotonic() > deadline
            if is_free and (is_late or not living):
                if len(living) < len(others):  # what a killed save has left
                    sweep_leftovers(storage, self._directory, prefix=prefix)
                if living:
                    warn(
                        f"{living[0].path} shows that another process may be saving {prefix} at the same time; the save that "
                        "ends last replaces the other: let only one process save to this path"
                    )
                return claim, self._open[0]
            storage.remove(claim.path)
            self._open.pop().close()
            if living and not is_late:
                time.sleep(random.uniform(0.005, 0.05))
            sweep_leftovers(storage, self._directory, prefix=prefix)
            taken = {other.shards or 0 for other in claims(storage, prefix)}

    def _remove_unpublished(self) -> None:
        """Removes the claims last, when the removal of the files that they claim is durable."""
        try:
            for file in self._open:
                temporary = Temporary.parse(file.path)
                if temporary is not None and temporary.shards is None:
                    self._storage.remove(file.path)
            for shard in self.linked:
                self._storage.remove(self.data[shard].path)
            for path in self._moved:
                self._storage.remove(path)
            if self._moved:
                self._storage.sync_directory(self._directory)
        except StorageError:
            return
        _remove_quietly(self._storage, [claim.path for claim in (self.claim, *self._replaced)])

    def _remove_replaced(self) -> None:
        try:
            for claim in self._replaced:
                for path in data_files(self._storage, self._prefix).get(claim.shards or 0, []):
                    self._storage.remove(path)
            self._storage.sync_directory(self._directory)
            for claim in self._replaced:
                self._storage.remove(claim.path)
        except StorageError as error:
            warn(f"{self._prefix} is saved, but data of the checkpoint that it replaced cannot be removed: {error}")


def _counts_in_use(storage: Storage, prefix: str) -> set[int]:
    """The numbers of shards whose data files belong, or may belong, to the visible index."""
    try:
        visible = visible_shards(storage, prefix)
    except (CorruptCheckpointError, StorageError):
        return set(data_files(storage, prefix))
    return set() if visible is None else {visible}


def _remove_quietly(storage: Storage, paths: list[str]) -> None:
    """Removes files of a failed save. A later sweep removes those that cannot be removed now."""
    for path in paths:
        try:
            storage.remove(path)
        except StorageError:
            pass
