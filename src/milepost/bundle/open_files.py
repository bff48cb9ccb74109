"""The open files of a V2 checkpoint: its index, and its data files, which are opened when they are needed.

Data files may be closed and opened again. Another checkpoint may have replaced this one by then. So a data file that is opened
again is used only if the index is still the one that was opened.
"""

from __future__ import annotations

from milepost.bundle.format.entry import Entry
from milepost.bundle.format.names import data_path
from milepost.bundle.index import Index
from milepost.errors import CheckpointNotFoundError, CorruptCheckpointError, MilepostError
from milepost.forks import ForkableLock
from milepost.storage import ReadableFile, Storage


class OpenFiles:
    """The files of an open checkpoint. Several threads may use it.

    Args:
        storage: Where the files are. A relative prefix must mean the same if the current directory changes.
        prefix: The checkpoint's prefix.
        index: Its index.
    """

    def __init__(self, storage: Storage, prefix: str, index: Index) -> None:
        self._storage = storage
        self._prefix = prefix
        self._index = index
        self._lock = ForkableLock()
        self._data: dict[int, ReadableFile] = {}
        self._closed = False
        self._released = False

    @property
    def paths(self) -> list[str]:
        """The paths of the data files that there must be; errors are those of `milepost.bundle.index.Index.shard_numbers`."""
        return [self.path_of(shard) for shard in self._index.shard_numbers()]

    def path_of(self, shard: int) -> str:
        """The path of the data file with a number."""
        return data_path(self._prefix, shard, self._index.shards)

    def __getitem__(self, shard: int) -> ReadableFile:
        return self.data_file(shard)

    def data_file(self, shard: int, key: str | None = None) -> ReadableFile:
        """A data file.

        Args:
            shard: Its number.
            key: The tensor that is wanted, for errors.

        Raises:
            CorruptCheckpointError: There is no such data file.
            CheckpointNotFoundError: The file is missing, or another checkpoint has replaced this one.
            StorageError: The file cannot be opened.
            ValueError: The checkpoint is closed.
        """
        file = self._data.get(shard)
        if file is None:
            if shard >= self._index.shards:
                raise CorruptCheckpointError(
                    "an entry for a data file that does not exist",
                    key=key,
                    file=self._index.file.path,
                    expected=f"a shard less than {self._index.shards}",
                    found=shard,
                )
            with self._lock:
                if self._closed:
                    raise ValueError(f"the reader of {self._prefix} is closed")
                file = self._data.get(shard)
                if file is None:
                    file = self._data[shard] = self._open(shard, key)
        return file

    def file_of(self, key: str, entry: Entry) -> ReadableFile:
        """The data file of a tensor.

        Args:
            key: The tensor, for errors.
            entry: Its entry, or that of a piece.

        Raises:
            CorruptCheckpointError: There is no such data file, or the tensor reaches beyond its end.
            CheckpointNotFoundError: As for `data_file`. So are `StorageError` and `ValueError`.
        """
        file = self._data.get(entry.shard) or self.data_file(entry.shard, key)
        if entry.offset + entry.size > file.size:
            raise CorruptCheckpointError(
                f"the tensor at byte {entry.offset} reaches beyond the end of its data file, which is truncated or belongs "
                "to another checkpoint",
                key=key,
                file=file.path,
                expected=f"at least {entry.offset + entry.size} bytes",
                found=f"{file.size} bytes",
            )
        return file

    def opened_bytes(self) -> int:
        """The bytes of the data files that are open."""
        with self._lock:
            return sum(file.size for file in self._data.values())

    def hold(self) -> None:
        """Opens all data files. Errors are those of `data_file` and `paths`."""
        for shard in self._index.shard_numbers():
            self.data_file(shard)

    def release(self) -> None:
        """Closes all files and keeps the content of the index. Data files that are needed later are opened again."""
        with self._lock:
            if self._closed:
                return
            try:
                self._index.release()
            except MilepostError:
                return  # then the file stays open; a garbage collection may have closed it before
            self._released = True
            self._close_data()

    def close(self) -> None:
        """Closes all files for good."""
        with self._lock:
            self._closed = True
            self._index.close()
            self._close_data()

    def _close_data(self) -> None:
        self._index.forget()
        for file in self._data.values():
            file.close()
        self._data.clear()

    def _open(self, shard: int, key: str | None) -> ReadableFile:
        try:
            file = self._storage.open(self.path_of(shard))
        except CheckpointNotFoundError:
            if self._index.is_visible() is False:
                raise _replaced(self._prefix, key) from None
            raise CheckpointNotFoundError(
                "a data file of the checkpoint is missing",
                key=key,
                file=self.path_of(shard),
                remedy="keep the files of a checkpoint as long as values in it are deferred"
                if self._released
                else "copy all files of a checkpoint, or use another one",
            ) from None
        except MilepostError as error:
            raise error.with_context(key=key) from None
        if self._released and self._index.is_visible() is False:
            file.close()
            raise _replaced(self._prefix, key)
        return file


def _replaced(prefix: str, key: str | None) -> CheckpointNotFoundError:
    return CheckpointNotFoundError(
        "the checkpoint that was opened no longer exists: another one has replaced it",
        key=key,
        file=prefix,
        remedy="open or restore the path again to get the checkpoint that replaced it",
    )
