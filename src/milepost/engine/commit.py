"""Making files visible, whole and durable or not at all.

A checkpoint, in this order; each step is durable before the next begins::

    1. claim the data's names     P.index.milepost-<token>-of-NNNNN.tmp, which becomes the index
    2. write and sync             P.data-SSSSS-of-NNNNN.milepost-<token>.tmp, then the index
    3. sync the directory         from here on a crash cannot lose a claim and keep the data; if there was a checkpoint P
                                  before, its data is claimed, too; a numbered save has been announced
    4. rename the data            to P.data-SSSSS-of-NNNNN, which nothing refers to yet
    5. sync the directory
    6. rename the index           THE COMMIT POINT
    7. sync the directory         the save may return
    8. remove replaced data       if there was a checkpoint P before

Invariants:

- An index that is visible has all its data, whole and durable: new data never takes the names of the visible index's
  data, because the number of shards is part of the name. If that number is taken, an empty shard is added.
- Before step 6 a crash leaves what was there before; after it, the new checkpoint. After step 7 it survives a power cut.
- What is left over can be told from everything else, see `milepost.engine.leftovers`.
- A failed sync of a file is not tried again: the kernel may have dropped the pages and call them clean.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from milepost.bundle import BundleWriter, data_path, index_path
from milepost.engine.announcement import Announcement
from milepost.engine.leftovers import data_files, sweep_leftovers, visible_shards
from milepost.engine.temporary import Temporary, claims, new_token
from milepost.errors import (
    AfterCommitError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    StorageError,
    warn,
)
from milepost.storage import Storage, WritableFile

_PATIENCE: Final = 10.0
"""Seconds to let another save of the same checkpoint end first. Without file locks it can also be a dead one's."""


def commit_bundle(
    storage: Storage,
    prefix: str,
    fill: Callable[[BundleWriter], None],
    *,
    shards: int = 1,
    alignment: int = 1,
    announcement: Announcement | None = None,
) -> None:
    """Writes a checkpoint; when this returns, it survives a power cut.

    A checkpoint that is there already is replaced as atomically as a new one is made. Its data is removed, but whoever
    has it open can go on reading.

    Args:
        storage: Where to write.
        prefix: Path of the files, without ending; missing directories are made.
        fill: Gives the tensors to the writer.
        shards: The number of data files. There may be one more, which is empty, while an old checkpoint of the same
            number is being replaced.
        alignment: Bytes; each tensor begins at a multiple of it.
        announcement: Made before the commit point, for a checkpoint that is to be listed after it.

    Raises:
        StorageError: The files could not be written, and what was there before still is.
        AfterCommitError: The new checkpoint is visible, and may or may not survive a power cut.

    Example:
        >>> import numpy as np
        >>> from milepost.storage import MemoryStorage
        >>> storage = MemoryStorage()
        >>> commit_bundle(storage, "run/ckpt-1", lambda writer: writer.add("x", np.float32([1, 2])))
        >>> storage.list("run")
        ['ckpt-1.data-00000-of-00001', 'ckpt-1.index']
    """
    storage.make_directory(os.path.dirname(prefix))
    try:
        with _Save(storage, prefix, shards) as save:
            writer = BundleWriter(shards=save.shards, alignment=alignment)
            fill(writer)
            for shard in range(save.shards):
                writer.write_shard(shard, save.open_shard(shard))
            save.publish(writer.index(), announcement)
    except CheckpointNotFoundError as error:
        raise _vanished(error) from error


def commit_file(storage: Storage, path: str, data: bytes) -> None:
    """Writes a small file, replacing it if it exists; when this returns, it survives a power cut.

    Args:
        storage: Where to write.
        path: The file; missing directories are made.
        data: All of its content.

    Raises:
        StorageError: The file could not be written, and what was there before still is; or, if only the very last step
            failed, the new file is there, and may or may not survive a power cut.

    Example:
        >>> from milepost.storage import MemoryStorage
        >>> storage = MemoryStorage()
        >>> commit_file(storage, "run/checkpoint", b"text")
        >>> storage.open("run/checkpoint").read(0, 4)
        b'text'
    """
    directory = os.path.dirname(path)
    storage.make_directory(directory)
    temporary = Temporary(path, new_token()).path
    try:
        with storage.create(temporary) as file:
            file.write(0, [data])
            file.sync()
            _rename(storage, temporary, path)
    except BaseException as error:
        _remove_quietly(storage, [temporary])
        if isinstance(error, CheckpointNotFoundError):
            raise _vanished(error) from error
        raise
    storage.sync_directory(directory)


class _Save:
    """The files of one save, from the claim to the commit. What it does not publish it removes."""

    def __init__(self, storage: Storage, prefix: str, wanted: int) -> None:
        self._storage = storage
        self._prefix = prefix
        self._directory = os.path.dirname(prefix)
        self._token = new_token()
        self._open: list[WritableFile] = []
        self._moved: list[str] = []
        self._replaced: list[Temporary] = []
        self._published = False
        self._claim, self._index = self._claim_names(wanted)
        self.shards = self._claim.shards or 0

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
                pass  # It has been synced, or given up.

    def open_shard(self, shard: int) -> WritableFile:
        """A new file for a data shard. It stays open until the save has ended, which tells others that it is alive."""
        return self._create(self._data(shard))

    def publish(self, index: bytes, announcement: Announcement | None) -> None:
        """Takes steps 2 to 8 of the protocol from the data's sync on."""
        storage, directory = self._storage, self._directory
        for file in self._open:
            if file is not self._index:
                file.sync()
        self._index.write(0, [index])
        self._index.sync()
        for shards in _counts_in_use(storage, self._prefix):
            claim = Temporary.claim(self._prefix, self._token, shards)
            self._create(claim)
            self._replaced.append(claim)
        if announcement is not None:
            announcement.make(storage, self._prefix, self._token, index)
        storage.sync_directory(directory)
        for shard in range(self.shards):
            final = data_path(self._prefix, shard, self.shards)
            self._moved.append(final)
            _rename(storage, self._data(shard).path, final)
        storage.sync_directory(directory)
        # From here on, whatever happens, the new index may be what a reader or a crash finds. A rename that fails, over a
        # network for example, may have been carried out.
        self._published = True
        try:
            _rename(storage, self._claim.path, index_path(self._prefix))
        except BaseException:
            self._published = not storage.is_file(self._claim.path)
            raise
        try:
            storage.sync_directory(directory)
        except StorageError as error:
            raise AfterCommitError(
                f"the checkpoint is saved, but a power cut may lose it: {error.problem}",
                errno=error.errno,
                file=self._prefix,
                remedy=error.remedy
                or "check the disk; the next save to this directory makes this checkpoint durable too",
            ) from error
        if self._replaced:
            self._remove_replaced()

    def _claim_names(self, wanted: int) -> tuple[Temporary, WritableFile]:
        storage, prefix = self._storage, self._prefix
        deadline = time.monotonic() + _PATIENCE
        taken: set[int] = set()
        while True:
            avoid = taken | _counts_in_use(storage, prefix)
            shards = next(count for count in range(wanted, wanted + len(avoid) + 1) if count not in avoid)
            claim = Temporary.claim(prefix, self._token, shards)
            file = storage.create(claim.path)
            try:
                others = [other for other in claims(storage, prefix) if other != claim]
                living = [other for other in others if storage.in_use(other.path)]
                taken = {other.shards or 0 for other in others}
                is_free = shards not in taken | _counts_in_use(storage, prefix)
            except BaseException:
                _remove_quietly(storage, [claim.path])
                file.close()
                raise
            is_late = time.monotonic() > deadline
            if is_free and (is_late or not living):
                if living:
                    warn(
                        f"another process seems to be saving {prefix} at the same time; the one that ends last wins: {living[0].path}"
                    )
                self._open.append(file)
                return claim, file
            storage.remove(claim.path)
            file.close()
            if living and not is_late:
                time.sleep(random.uniform(0.005, 0.05))
            sweep_leftovers(storage, self._directory, prefix=prefix)
            taken = {other.shards or 0 for other in claims(storage, prefix)}

    def _data(self, shard: int) -> Temporary:
        return Temporary(data_path(self._prefix, shard, self.shards), self._token)

    def _create(self, temporary: Temporary) -> WritableFile:
        file = self._storage.create(temporary.path)
        self._open.append(file)
        return file

    def _remove_unpublished(self) -> None:
        """Removes claims only after what they claim is gone for good, or a crash now would leave it unclaimed."""
        try:
            for file in self._open:
                temporary = Temporary.parse(file.path)
                if temporary is not None and temporary.shards is None:
                    self._storage.remove(file.path)
            for path in self._moved:
                self._storage.remove(path)
            if self._moved:
                self._storage.sync_directory(self._directory)
        except StorageError:
            return
        _remove_quietly(self._storage, [claim.path for claim in (self._claim, *self._replaced)])

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
    """The numbers of shards whose data files belong, or for all one can tell may belong, to the visible index."""
    try:
        visible = visible_shards(storage, prefix)
    except CorruptCheckpointError:
        return set(data_files(storage, prefix))
    return set() if visible is None else {visible}


def _rename(storage: Storage, temporary: str, final: str) -> None:
    """Gives a file of a save its final name.

    Raises:
        StorageError: The storage cannot. If a directory has that name, the error names it and not the temporary file.
    """
    try:
        storage.rename(temporary, final)
    except StorageError as error:
        if error.errno != errno.EISDIR:
            raise
        raise StorageError(
            "cannot save: a directory has the name of a file of the save",
            errno=errno.EISDIR,
            file=final,
            expected="a file, or nothing",
            found="a directory",
            remedy="rename or remove that directory, or save under another name",
        ) from error


def _remove_quietly(storage: Storage, paths: list[str]) -> None:
    """Removes what a failed save leaves; what cannot be removed now is swept later."""
    for path in paths:
        try:
            storage.remove(path)
        except StorageError:
            pass


def _vanished(error: CheckpointNotFoundError) -> StorageError:
    return StorageError(
        f"a file of a running save was removed: {error.problem}",
        errno=errno.ENOENT,
        file=error.file,
        remedy="keep other programs from removing files that end in .tmp and their directory",
    )
