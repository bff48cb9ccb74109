"""Blocks of a sorted string table, and its footer.

::

    table       := {data block}  metaindex block  index block  footer
    footer      := metaindex handle  index handle  {00}  magic        padded to 40 bytes before the magic
    handle      := offset:varint  size:varint                         the place of a block; the size is without the trailer
    magic       := 57 fb 80 8b 24 75 47 db                            0xdb4775248b80fb57, little-endian
    block       := contents  trailer
    trailer     := compression  crc:u32                               the masked CRC-32C of the stored contents and ``compression``
    compression := 00 | 01                                            none | snappy
    contents    := {entry}  {restart offset:u32}  restart count:u32
    entry       := shared:varint  unshared:varint  value size:varint  key suffix  value

Integers are little-endian. The suffix of a key has ``unshared`` bytes. An entry's key is the first ``shared`` bytes of the key before
it, and the suffix. At each restart offset an entry with ``shared`` = 0 begins; the first restart is always 0, also in a block without
entries.

The value of an index entry is the handle of a data block; its key is not less than any key of that block, and less than
any key of the next. Data blocks follow each other in the order of their keys. The metaindex is empty. Readers accept
gaps between blocks, any block size and any number of entries between restarts.

Source: LevelDB ``doc/table_format.md`` and ``table/block_builder.cc``; TensorFlow 2.21, observed.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from milepost.coding import snappy, varint
from milepost.coding.crc32c import crc32c, mask
from milepost.errors import CorruptCheckpointError, MismatchError

TRAILER_SIZE: Final = 5
FOOTER_SIZE: Final = 48
MAGIC: Final = bytes.fromhex("57fb808b247547db")
_UNCOMPRESSED: Final = 0
_SNAPPY: Final = 1
FEW_BYTES: Final = 256
"""The most bytes of two keys that are compared as numbers."""
_U32: Final = struct.Struct("<I")

Row = tuple[bytes, bytes]
"""Key and value."""


class Handle(NamedTuple):
    """The place of the contents of a block."""

    offset: int
    size: int

    def encode(self) -> bytes:
        """The handle as two varints."""
        return varint.encode(self.offset) + varint.encode(self.size)

    @classmethod
    def decode(cls, data: bytes, position: int = 0) -> tuple[Handle, int]:
        """Reads a handle. Returns the handle and the position after it."""
        offset, position = varint.decode(data, position)
        size, position = varint.decode(data, position)
        return cls(offset, size), position


def encode_footer(metaindex: Handle, index: Handle) -> bytes:
    """The last bytes of a table."""
    return (metaindex.encode() + index.encode()).ljust(FOOTER_SIZE - len(MAGIC), b"\0") + MAGIC


def decode_footer(data: bytes) -> tuple[Handle, Handle]:
    """Reads the last `FOOTER_SIZE` bytes of a table: handles of the metaindex and the index block.

    Raises:
        CorruptCheckpointError: The bytes are not a footer.
    """
    if data[-len(MAGIC) :] != MAGIC:
        raise CorruptCheckpointError(
            "this file is not a checkpoint index: its end is not that of an index",
            expected=f"magic {MAGIC.hex()}",
            found=data[-len(MAGIC) :].hex() or "nothing",
        )
    metaindex, position = Handle.decode(data)
    index, _ = Handle.decode(data, position)
    return metaindex, index


def first_difference(a: bytes, b: bytes) -> tuple[int, int]:
    """A range of at most `FEW_BYTES` bytes that has the first byte in which two strings differ, or is at the end of the shorter one.

    Example:
        >>> first_difference(b"n" * 1000 + b"bias", b"n" * 1000 + b"kernel")
        (753, 1004)
    """
    same, end = 0, min(len(a), len(b))
    while end - same > FEW_BYTES:
        # to find that bytes are equal takes much less time than to find the first that differ
        half = (same + end) // 2
        if a[same:half] == b[same:half]:
            same = half
        else:
            end = half
    return same, end


class BlockBuilder:
    """Builds the contents of one block from ascending keys.

    Args:
        restart_interval: The number of entries after which a key is written whole.
        last_key: The key before the first one; None if there is none.
        most: The size in bytes at which the block is full. An entry of twice as many is the first of its block.

    Attributes:
        last_key: The key of the last entry.
        is_empty: Whether the block has no entries yet.
        is_full: Whether the next entry belongs to the next block.
    """

    def __init__(self, restart_interval: int, last_key: bytes | None = None, most: int = sys.maxsize) -> None:
        self._interval = restart_interval
        self._parts: list[bytes] = []
        self._restarts: list[int] = []
        self._end = 0
        self._large = 2 * most
        self._left = most - 2 * _U32.size  # the first restart offset and the restart count
        self.last_key = last_key
        self.is_empty = True
        self.is_full = False

    def fill(self, rows: Iterator[Row]) -> Row | None:
        """Appends entries until the block is full. This is one loop, because an index may have millions of entries.

        Args:
            rows: The keys and values. No more of them are taken than are appended or returned.

        Returns:
            The entry that must be the first of the next block, if one was found; otherwise None.

        Raises:
            MismatchError: A key is not greater than the one before it.
        """
        parts, restarts, end, last = self._parts, self._restarts, self._end, self.last_key
        interval, large, left = self._interval, self._large, self._left
        from_bytes = int.from_bytes
        refused: Row | None = None
        try:
            for key, value in rows:
                if last is not None and key <= last:
                    raise MismatchError("keys of a table must ascend", key=key, expected=f"more than {last!r}")
                if len(key) + len(value) >= large and parts:
                    refused = key, value
                    break
                if last is None or not len(parts) % interval:
                    shared = 0
                    if parts:
                        left -= _U32.size
                    restarts.append(end)
                else:
                    # the highest byte in which two big-endian numbers differ is the first byte in which the strings differ
                    same, shared = 0, min(len(last), len(key))
                    if shared > FEW_BYTES:
                        same, shared = first_difference(last, key)
                    difference = from_bytes(last[same:shared]) ^ from_bytes(key[same:shared])
                    shared -= (difference.bit_length() + 7) // 8
                unshared = key[shared:]
                if len(key) < 128 and len(value) < 128:
                    entry = b"%c%c%c%b%b" % (shared, len(unshared), len(value), unshared, value)
                else:
                    sizes = varint.encode(shared) + varint.encode(len(unshared)) + varint.encode(len(value))
                    entry = b"".join((sizes, unshared, value))
                parts.append(entry)
                end += len(entry)
                left -= len(entry)
                last = key
                if left <= 0:
                    break
        finally:
            self._end, self._left, self.last_key = end, left, last
            self.is_empty = not parts
            self.is_full = left <= 0 or refused is not None
        return refused

    def finish(self) -> bytes:
        """The block as it is stored: the entries and the restart offsets, uncompressed, and the trailer."""
        restarts = self._restarts or [0]
        ends = struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
        stored = b"".join((*self._parts, ends, bytes((_UNCOMPRESSED,))))
        return stored + _U32.pack(mask(crc32c(stored)))


def unseal(stored: bytes, *, limit: int) -> bytes:
    """Checks a stored block and returns its contents.

    Args:
        stored: The block with its trailer.
        limit: The largest size of the decompressed contents in bytes.

    Raises:
        CorruptCheckpointError: The checksum is wrong, or the compression is unknown or broken.
    """
    checksum = mask(crc32c(memoryview(stored)[:-4]))
    (expected,) = _U32.unpack_from(stored, len(stored) - 4)
    if checksum != expected:
        raise CorruptCheckpointError(
            "a block of the index is damaged: its checksum is wrong",
            expected=f"{expected:#010x}",
            found=f"{checksum:#010x}",
        )
    compression = stored[-TRAILER_SIZE]
    if compression == _UNCOMPRESSED:
        return stored[:-TRAILER_SIZE]
    if compression == _SNAPPY:
        return snappy.decompress(stored[:-TRAILER_SIZE], limit=limit)
    raise CorruptCheckpointError("a block of unknown compression", expected="0 (none) or 1 (snappy)", found=compression)
