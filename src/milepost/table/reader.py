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
    entries,
    first_entry,
    restart_keys,
    unseal,
)
from milepost.table.rows import Rows, decode_blocks

BLOCK_LIMIT: Final = 1 << 28
"""The size in bytes of the largest block. TensorFlow's blocks have 256 KiB, or one larger entry."""
_CACHE_LIMIT: Final = 1 << 26
"""The total size in bytes of blocks that are kept in memory. Only a huge index has more."""
_ENTRY_OVERHEAD: Final = 200
"""The memory in bytes of an entry in a kept block, without its key and its value."""
_TOGETHER: Final = 1 << 20
"""The size in bytes of blocks that are decoded at once."""


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
        self._blocks: dict[int, dict[bytes, bytes]] = {}
        self._cached = 0
        self._last: tuple[int, bytes] | None = None
        """The block that was read last for one entry, and its contents, until `rows` has decoded them."""
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
            pairs = [(key, Handle.decode(value)[0]) for key, value in entries(self._read(index))]
            end = 0
            for _, handle in pairs:
                # overlapping blocks would make the time quadratic in the size of the file
                if handle.offset < end:
                    raise CorruptCheckpointError(
                        "blocks overlap or are out of order", expected=f"a block from {end} on", found=handle
                    )
                end = handle.offset + handle.size + TRAILER_SIZE
        except CorruptCheckpointError as error:
            self._raise_located(error, "index block", index.offset)
        self._limits = [key for key, _ in pairs]
        self._handles = [handle for _, handle in pairs]

    def first(self) -> Row | None:
        """The entry with the least key, or None if there is none.

        Raises:
            CorruptCheckpointError: The first block is damaged.
        """
        if not self._handles:
            return None
        contents = self._contents(0)
        self._last = 0, contents
        try:
            return first_entry(contents)
        except CorruptCheckpointError as error:
            self._raise_located(error, "data block", self._handles[0].offset)

    def get(self, key: bytes) -> bytes | None:
        """The value under a key, or None.

        Raises:
            CorruptCheckpointError: The block in which the key would be is damaged.
        """
        block = bisect_left(self._limits, key)
        if block == len(self._limits):
            return None
        found = self._blocks.get(block)
        if found is None:
            contents = self._contents(block)
            self._last = block, contents
            found = dict(self._entries_in(block, contents))
            with self._lock:
                if block not in self._blocks:  # another thread may have read it too
                    self._blocks[block] = found
                    self._cached += _size(found)
                while self._cached > _CACHE_LIMIT:
                    self._cached -= _size(self._blocks.pop(next(iter(self._blocks))))
        return found.get(key)

    def rows(self) -> Rows:
        """All entries, in order. Blocks are decoded together, which takes less time and memory than one entry after the other.

        Raises:
            CorruptCheckpointError: A block is damaged, or keys do not ascend.
        """
        parts = []
        together: list[bytes] = []
        size = 0
        for block in range(len(self._handles)):
            together.append(self._contents(block))
            size += len(together[-1])
            if size >= _TOGETHER or block == len(self._handles) - 1:
                parts.append(self._rows(block + 1 - len(together), together))
                together, size = [], 0
        self._last = None
        return Rows.joined(parts) if parts else Rows.of([])

    def _rows(self, first: int, contents: list[bytes]) -> Rows:
        """The entries of some blocks that follow each other."""
        found = decode_blocks(contents)
        if found is None or not self._are_in_limits(first, *found):
            return Rows.of(row for block, each in enumerate(contents, first) for row in self._entries_in(block, each))
        return found[0]

    def _are_in_limits(self, first: int, rows: Rows, counts: list[int]) -> bool:
        """Whether the keys of blocks are those that the index promises."""
        end = 0
        for block, count in enumerate(counts, first):
            start, end = end, end + count
            before = self._limits[block - 1] if block else None
            if count and before is not None and rows.keys[start].encode("latin-1") <= before:
                return False
            if count and rows.keys[end - 1].encode("latin-1") > self._limits[block]:
                return False
        return True

    def forget(self) -> None:
        """Forgets the blocks that were read, which take more memory than the file. They are read again when they are needed."""
        with self._lock:
            self._blocks.clear()
            self._cached = 0
            self._last = None

    def verify(self) -> None:
        """Reads and checks all parts of the table.

        Raises:
            CorruptCheckpointError: A part is damaged.
        """
        self._last = None
        try:
            entries(self._read(self._metaindex))
        except CorruptCheckpointError as error:
            self._raise_located(error, "metaindex block", self._metaindex.offset)
        for block, handle in enumerate(self._handles):
            keys = {key for key, _ in self._entries(block)}
            try:
                restarts = restart_keys(self._read(handle))
                if restarts != sorted(keys.intersection(restarts)):
                    raise CorruptCheckpointError("a block of the index is malformed: its restarts are wrong")
            except CorruptCheckpointError as error:
                self._raise_located(error, "data block", handle.offset)

    def _entries(self, block: int) -> list[tuple[bytes, bytes]]:
        """The entries of a data block, read from the file."""
        return self._entries_in(block, self._contents(block))

    def _entries_in(self, block: int, contents: bytes) -> list[tuple[bytes, bytes]]:
        """The entries of a data block."""
        handle, limit, before = self._handles[block], self._limits[block], self._limits[block - 1] if block else None
        try:
            found = entries(contents)
            # an entry outside the limits would be listed, but `get` could not find it
            if found and before is not None and found[0][0] <= before:
                raise CorruptCheckpointError(
                    "the index disagrees with its blocks", expected=f"a key after {before!r}", found=repr(found[0][0])
                )
            if found and found[-1][0] > limit:
                raise CorruptCheckpointError(
                    "the index disagrees with its blocks", expected=f"no key after {limit!r}", found=repr(found[-1][0])
                )
        except CorruptCheckpointError as error:
            self._raise_located(error, "data block", handle.offset)
        return found

    def _contents(self, block: int) -> bytes:
        """The contents of a data block."""
        last = self._last
        if last is not None and last[0] == block:
            return last[1]
        handle = self._handles[block]
        try:
            return self._read(handle)
        except CorruptCheckpointError as error:
            self._raise_located(error, "data block", handle.offset)

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


def _size(entries_of_block: dict[bytes, bytes]) -> int:
    """The memory of a block in bytes."""
    parts = sum(map(len, entries_of_block)) + sum(map(len, entries_of_block.values()))
    return parts + _ENTRY_OVERHEAD * len(entries_of_block)
