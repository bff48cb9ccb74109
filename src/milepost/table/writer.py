"""Writes a sorted string table, byte for byte as TensorFlow does.

Data blocks grow to 256 KiB; a large entry gets a block of its own. The index has one entry for each data block, whose
key is the shortest one that is not less than any key of the block and less than all keys of the next. Between
``"net/bias"`` and ``"net/kernel"`` it is ``"net/c"``.

Source: TensorFlow 2.21, ``tsl/lib/io/table_builder.cc``, observed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

from milepost.table.block import TRAILER_SIZE, BlockBuilder, Handle, Row, encode_footer, first_difference

BLOCK_SIZE: Final = 262144
RESTART_INTERVAL: Final = 16


class TableWriter:
    """Builds a table in memory.

    Args:
        block_size: The size in bytes at which a data block ends.
        restart_interval: The number of entries in a data block after which a key is written whole.

    Example:
        >>> writer = TableWriter()
        >>> writer.add([(b"key", b"value")])
        >>> len(writer.finish())
        104
    """

    def __init__(self, block_size: int = BLOCK_SIZE, restart_interval: int = RESTART_INTERVAL) -> None:
        self._block_size = block_size
        self._interval = restart_interval
        self._block = BlockBuilder(restart_interval, most=block_size)
        self._index = BlockBuilder(1)
        self._stored: list[bytes] = []
        self._offset = 0
        self._unindexed: Handle | None = None

    def add(self, rows: Iterable[Row]) -> None:
        """Appends entries.

        Args:
            rows: Their keys and values.

        Raises:
            MismatchError: A key is not greater than the one before it.
        """
        left = iter(rows)
        row = next(left, None)
        while row is not None:
            if self._unindexed is not None:
                # delayed until the next key is known, because the index key lies between the keys of both blocks
                assert self._block.last_key is not None
                self._index.fill(iter([(_separator(self._block.last_key, row[0]), self._unindexed.encode())]))
                self._unindexed = None
            refused = self._block.fill(itertools.chain([row], left))
            if self._block.is_full:
                self._flush()
            row = next(left, None) if refused is None else refused

    def finish(self) -> bytes:
        """The whole table."""
        if not self._block.is_empty:
            self._flush()
        metaindex = self._store(BlockBuilder(1).finish())
        if self._unindexed is not None:
            assert self._block.last_key is not None
            self._index.fill(iter([(_successor(self._block.last_key), self._unindexed.encode())]))
        index = self._store(self._index.finish())
        return b"".join(self._stored) + encode_footer(metaindex, index)

    def _flush(self) -> None:
        self._unindexed = self._store(self._block.finish())
        self._block = BlockBuilder(self._interval, self._block.last_key, self._block_size)

    def _store(self, stored: bytes) -> Handle:
        handle = Handle(self._offset, len(stored) - TRAILER_SIZE)
        self._stored.append(stored)
        self._offset += len(stored)
        return handle


def _separator(last: bytes, following: bytes) -> bytes:
    same, end = first_difference(last, following)
    for position in range(same, end):
        a, b = last[position], following[position]
        if a != b:
            return last[:position] + bytes((a + 1,)) if a < 255 and a + 1 < b else last
    return last


def _successor(last: bytes) -> bytes:
    for position, byte in enumerate(last):
        if byte != 255:
            return last[:position] + bytes((byte + 1,))
    return last
