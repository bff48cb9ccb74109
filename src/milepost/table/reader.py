"""Reads a sorted string table: single keys without reading the rest, or all entries in order."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NoReturn

from milepost.errors import CorruptCheckpointError
from milepost.forks import ForkableLock
from milepost.storage import ReadableFile
from milepost.table.block import (
    FOOTER_SIZE,
    TRAILER_SIZE,
    Handle,
    Row,
    decode_footer,
    unseal,
)
from milepost.table.rows import Rows, check_restarts, decode

BLOCK_LIMIT: Final = 1 << 28
"""The size in bytes of the largest block. TensorFlow's blocks have 256 KiB, or one larger entry."""
_CACHE_LIMIT: Final = 1 << 26
"""The total size in bytes of blocks that are kept in memory. Only a huge index has more."""
_ENTRY_OVERHEAD: Final = 200
"""The memory in bytes of an entry in a kept block, beside its bytes in the file."""


class TableReader:
    """A table in a file. Its index is read at once. Blocks are read when they are needed, and then kept.

    Several threads may read at once. Memory stays in proportion to the size of the file, even if the file is damaged.

    Args:
        file: The file. The caller closes it after the last use of the reader.
        block_limit: The largest size of a block in bytes. Tables of TensorFlow 1 that hold tensors need more than the default.

    Attributes:
        file: The file. It may be replaced by another with the same bytes.

    Raises:
        CorruptCheckpointError: The file is not a table, or damaged.
    """

    def __init__(self, file: ReadableFile, *, block_limit: int = BLOCK_LIMIT) -> None:
        self.file = file
        self._block_limit = block_limit
        self._blocks: dict[int, Rows] = {}
        self._cached = 0
        self._first: bytes | None = None
        """The contents of the first block, if only its first entry is decoded yet."""
        self._lock = ForkableLock()
        if file.size < FOOTER_SIZE:
            raise CorruptCheckpointError(
                "this file is not a checkpoint index: it is too short for one",
                file=file.path,
                expected=f"at least {FOOTER_SIZE} bytes",
                found=f"{file.size} bytes",
            )
        at = file.size - FOOTER_SIZE
        try:
            self._metaindex, index = decode_footer(file.read(at, FOOTER_SIZE))
        except CorruptCheckpointError as error:
            self._raise_located(error, "footer", at)
        try:
            rows = decode(self._read(index))
            handles = [Handle.decode(rows.value(block))[0] for block in range(len(rows.keys))]
            end = 0
            for handle in handles:
                # overlapping blocks would make the time quadratic in the size of the file
                if handle.offset < end:
                    raise CorruptCheckpointError(
                        "blocks overlap or are out of order", expected=f"a block from {end} on", found=handle
                    )
                end = handle.offset + handle.size + TRAILER_SIZE
        except CorruptCheckpointError as error:
            self._raise_located(error, "index block", index.offset)
        self._limits = rows.keys
        self._handles = handles

    def first(self) -> Row | None:
        """The entry with the least key, or None if there is none.

        Raises:
            CorruptCheckpointError: The first block is damaged.
        """
        if not self._handles:
            return None
        rows = self._decoded(0, first=True)
        return (rows.keys[0].encode("latin-1"), rows.value(0)) if rows.keys else None

    def get(self, key: bytes) -> bytes | None:
        """The value under a key, or None.

        Raises:
            CorruptCheckpointError: The block in which the key would be is damaged.
        """
        name = key.decode("latin-1")
        block = bisect_left(self._limits, name)
        if block == len(self._limits):
            return None
        rows = self._blocks.get(block)
        if rows is None:
            rows = self._decoded(block)
            with self._lock:
                if block not in self._blocks:  # another thread may have read it too
                    self._blocks[block] = rows
                    self._cached += _size(rows)
                while self._cached > _CACHE_LIMIT:
                    self._cached -= _size(self._blocks.pop(next(iter(self._blocks))))
        row = bisect_left(rows.keys, name)
        return rows.value(row) if rows.keys[row : row + 1] == [name] else None

    def rows(self) -> Rows:
        """All entries, in order.

        Raises:
            CorruptCheckpointError: A block is damaged, or keys do not ascend.
        """
        return Rows.joined([self._blocks.get(block) or self._decoded(block) for block in range(len(self._handles))])

    def forget(self) -> None:
        """Forgets the blocks that were read, which take more memory than the file. They are read again when they are needed."""
        with self._lock:
            self._blocks.clear()
            self._cached = 0
            self._first = None

    def verify(self) -> None:
        """Reads and checks all parts of the table.

        Raises:
            CorruptCheckpointError: A part is damaged.
        """
        self._first = None
        try:
            decode(self._read(self._metaindex))
        except CorruptCheckpointError as error:
            self._raise_located(error, "metaindex block", self._metaindex.offset)
        for block, handle in enumerate(self._handles):
            rows = self._decoded(block)
            try:
                check_restarts(rows)
            except CorruptCheckpointError as error:
                self._raise_located(error, "data block", handle.offset)

    def _decoded(self, block: int, *, first: bool = False) -> Rows:
        """The entries of a data block, or the first of them alone."""
        handle, limit, before = self._handles[block], self._limits[block], self._limits[block - 1] if block else None
        try:
            contents = (None if block else self._first) or self._read(handle)
            self._first = contents if first else None
            rows = decode(contents, first=first)
            # an entry outside the limits would be listed, but `get` could not find it
            if rows.keys and before is not None and rows.keys[0] <= before:
                raise CorruptCheckpointError(
                    "the index disagrees with its blocks", expected=f"a key after {before!r}", found=repr(rows.keys[0])
                )
            if rows.keys and rows.keys[-1] > limit:
                raise CorruptCheckpointError(
                    "the index disagrees with its blocks",
                    expected=f"no key after {limit!r}",
                    found=repr(rows.keys[-1]),
                )
        except CorruptCheckpointError as error:
            self._raise_located(error, "data block", handle.offset)
        return rows

    def _read(self, handle: Handle) -> bytes:
        end = handle.offset + handle.size + TRAILER_SIZE
        if end > self.file.size - FOOTER_SIZE:
            raise CorruptCheckpointError(
                "a block lies outside its file", expected=f"an end up to {self.file.size - FOOTER_SIZE}", found=end
            )
        if handle.size > self._block_limit:
            raise CorruptCheckpointError(
                "a block is too large", expected=f"at most {self._block_limit} bytes", found=f"{handle.size} bytes"
            )
        return unseal(self.file.read(handle.offset, handle.size + TRAILER_SIZE), limit=self._block_limit)

    def _raise_located(self, error: CorruptCheckpointError, part: str, offset: int) -> NoReturn:
        error.problem = f"{error.problem} ({part} at offset {offset})"
        raise error.with_context(file=self.file.path) from None


def _size(rows: Rows) -> int:
    """The memory of a block in bytes."""
    return len(rows.data) + sum(map(len, rows.keys)) + _ENTRY_OVERHEAD * len(rows.keys)
