"""Objects of a bucket that are open, for reading or for writing."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self

from milepost.errors import CheckpointNotFoundError, StorageError
from milepost.forks import ForkableLock
from milepost.storage.buffers import byte_view, check_range
from milepost.storage.interface import Buffer
from milepost.storage.objects.bucket import Head, Upload

if TYPE_CHECKING:
    from milepost.storage.objects.storage import ObjectStorage

PART: Final = 16 << 20
"""Bytes of one part of an upload."""
MOST_PARTS: Final = 10_000
"""The most parts that S3 takes for one object. Their size cannot grow, because nobody knows how long an object becomes."""
_WHOLE: Final = 8 << 20
"""An object of at most so many bytes is read as a whole when a part of it is first read."""


class ObjectFile:
    """An object that is open for reading. It cannot be read any more when the object is removed or replaced, unless it is small.

    Args:
        storage: Where it is.
        path: Its path.
        key: Its key.
        head: What is known of it.
        content: Its bytes, if it is so small that they came with what is known of it.
    """

    def __init__(self, storage: ObjectStorage, path: str, key: str, head: Head, content: bytes | None) -> None:
        self.path = path
        self.size = head.size
        self._storage = storage
        self._key = key
        self._version = head.version
        self._content = content

    def read(self, offset: int, length: int) -> bytes:
        check_range(self.path, offset, length, self.size)
        if length == 0:
            return b""
        if self.size > _WHOLE:
            return self._get(offset, offset + length)
        content = self._content
        if content is None:
            content = self._content = self._get(0, self.size)
        return content[offset : offset + length]

    def read_into(self, offset: int, buffer: Buffer) -> None:
        target = byte_view(buffer)
        target[:] = self.read(offset, len(target))

    def close(self) -> None:
        self._content = None

    def _get(self, start: int, stop: int) -> bytes:
        bucket = self._storage.bucket
        try:
            return self._storage.ask("read", self.path, lambda: bucket.get(self._key, start, stop, self._version))
        except CheckpointNotFoundError:
            what = "removed"
        except StorageError as error:
            if error.errno != errno.EEXIST:
                raise
            what = "replaced"
        raise CheckpointNotFoundError(
            f"cannot read: the object was {what} while it was open",
            file=self.path,
            remedy="open or restore the checkpoint again; a store keeps no removed objects for their readers",
        )


class ObjectWriter:
    """A new object. It is empty until `sync` or `close` writes what it holds; a large one is sent in parts before that.

    Attributes:
        path: The path with which it was created.
        key: Its key.
        is_note: Whether nothing was written to it, so that it is empty and only its name counts.
        touched: When the object was last written, as `time.monotonic` gives it.
    """

    def __init__(self, storage: ObjectStorage, path: str, key: str, touched: float) -> None:
        self.path = path
        self.key = key
        self.is_note = True
        self.touched = touched
        self._storage = storage
        self._lock = ForkableLock()
        self._buffer = bytearray()
        self._written: list[tuple[int, int]] = []
        """Which ranges were written, in order. Two never touch."""
        self._sent = 0
        self._upload: Upload | None = None
        self._is_open = True
        self._is_unsaved = False
        self._is_discarded = False

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        data = b"".join([byte_view(buffer) for buffer in buffers])
        self._storage.keep_notes()
        with self._lock:
            self._check_open("write")
            if not data:
                return
            if offset < self._sent or (self._sent and self._upload is None):
                raise self._refused("write before what was sent to the store", errno.ESPIPE)
            self.is_note, self._is_unsaved = False, True
            start = offset - self._sent
            self._buffer.extend(bytes(max(0, start + len(data) - len(self._buffer))))
            self._buffer[start : start + len(data)] = data
            self._note(offset, offset + len(data))
            while self._written[0][0] == 0 and self._written[0][1] - self._sent >= PART:
                self._send(PART)

    def sync(self) -> None:
        self._storage.keep_notes()
        with self._lock:
            self._check_open("make durable")
            self._save()

    def close(self) -> None:
        with self._lock:
            if self._is_open:
                self._is_open = False
                try:
                    self._save()
                finally:
                    self._storage.closed(self.key, self)

    def discard(self) -> None:
        """Drops what was not written to the store, because the object was removed."""
        with self._lock:
            self._is_discarded = True
            self._is_unsaved = False
            self._buffer.clear()
            upload, self._upload = self._upload, None
            if upload is not None:
                upload.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _note(self, start: int, stop: int) -> None:
        """Adds a range to those that were written."""
        apart = [each for each in self._written if each[1] < start or stop < each[0]]
        joined = [each for each in self._written if not (each[1] < start or stop < each[0])]
        start, stop = min([start, *(each[0] for each in joined)]), max([stop, *(each[1] for each in joined)])
        self._written = sorted([*apart, (start, stop)])

    def _send(self, size: int) -> None:
        if self._sent >= MOST_PARTS * PART:
            raise StorageError(
                "the data file is larger than a store takes in parts",
                errno=errno.EFBIG,
                file=self.path,
                expected=f"at most {MOST_PARTS * PART} bytes",
                remedy="divide the save by CheckpointOptions(experimental_sharding_callback=milepost.MaxShardSizePolicy(...))",
            )
        if self._upload is None:
            self._upload = self._storage.ask("write", self.path, lambda: self._storage.bucket.upload(self.key))
        part, upload = bytes(memoryview(self._buffer)[:size]), self._upload
        del self._buffer[:size]
        self._sent += size
        # A part that fails is not sent again here: the library that sends it has done so.
        self._storage.ask("write", self.path, lambda: upload.send(part), repeat=False)

    def _save(self) -> None:
        if not self._is_unsaved or self._is_discarded:
            return
        self._is_unsaved = False
        if self._upload is None:
            data = bytes(self._buffer)
            self._storage.ask("write", self.path, lambda: self._storage.bucket.put(self.key, data))
            return
        if self._buffer:
            self._send(len(self._buffer))
        upload, self._upload = self._upload, None
        self._storage.ask("write", self.path, upload.complete, repeat=False)

    def _check_open(self, doing: str) -> None:
        if not self._is_open:
            raise self._refused(doing, errno.EBADF)

    def _refused(self, doing: str, code: int) -> StorageError:
        return StorageError(f"cannot {doing}: {os.strerror(code)}", errno=code, file=self.path)
