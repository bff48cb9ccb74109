"""Decodes the entries of blocks, whose grammar is in `milepost.table.block`."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Final, NamedTuple, Self

import numpy as np

from milepost.coding import varint
from milepost.coding.varints import Column
from milepost.errors import CorruptCheckpointError

MOST_ENTRIES: Final = 1 << 18
"""The largest number of entries in a block, which are all in memory at once. A block of 256 KiB has at most 65,536."""
_MOST_KEY_BYTES: Final = 32
"""The largest number of key bytes for one stored byte. TensorFlow restarts every 16 entries, so it stays below 16. Without a
limit, a megabyte could hold a terabyte of keys, each of which repeats almost all of the previous one."""
_FREE_KEY_BYTES: Final = 1 << 16
_MOST_KEY_BYTES_OF_A_BLOCK: Final = 1 << 26


class Rows(NamedTuple):
    """Entries of a table, in order.

    Attributes:
        keys: Each byte of a key as one character, so a key of ASCII is the text that it is. They sort as the bytes do.
        data: The values, with other bytes between them.
        starts: Where each value begins.
        ends: Where each value ends.
    """

    keys: list[str]
    data: bytes
    starts: Column
    ends: Column

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of some parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        before = [0, *accumulate(len(part.data) for part in parts)]
        empty = np.zeros(0, np.int64)
        return cls(
            list(chain.from_iterable(part.keys for part in parts)),
            b"".join(part.data for part in parts),
            np.concatenate([empty, *(part.starts + start for part, start in zip(parts, before, strict=False))]),
            np.concatenate([empty, *(part.ends + start for part, start in zip(parts, before, strict=False))]),
        )

    def value(self, place: int) -> bytes:
        """The value of one row."""
        return self.data[self.starts[place] : self.ends[place]]


def decode(contents: bytes, *, first: bool = False) -> Rows:
    """The entries of a block. This is one loop, because an index may have millions of entries.

    Args:
        contents: The contents of the block.
        first: Whether only the first entry is wanted. The others are not looked at.

    Raises:
        CorruptCheckpointError: The contents are malformed, or keys do not ascend.
    """
    limit, _ = _restarts(contents)
    text = contents.decode("latin-1")
    # how many bytes the keys may share in all
    budget = min(_MOST_KEY_BYTES * len(contents) + _FREE_KEY_BYTES, _MOST_KEY_BYTES_OF_A_BLOCK)
    keys: list[str] = []
    starts, ends = array("q"), array("q")
    key = ""
    position = 0
    while position < limit and not (first and keys):
        # There are always three bytes, because the restart array follows.
        shared, unshared, size = contents[position], contents[position + 1], contents[position + 2]
        if shared < 128 and unshared < 128 and size < 128:
            position += 3
        else:
            shared, position = varint.decode(contents, position)
            unshared, position = varint.decode(contents, position)
            size, position = varint.decode(contents, position)
        start = position + unshared
        end = start + size
        budget -= shared
        if shared > len(key) or end > limit or budget < 0:
            raise _malformed("an entry does not fit into it", found=f"lengths {shared}, {unshared} and {size}")
        if len(keys) == MOST_ENTRIES:
            raise _malformed("it has too many entries", expected=f"at most {MOST_ENTRIES}", found="more")
        new = key[:shared] + text[position:start]
        if new <= key and keys:
            raise _malformed("keys are out of order", expected=f"a key after {key!r}", found=repr(new))
        key, position = new, end
        keys.append(key)
        starts.append(start)
        ends.append(end)
    return Rows(keys, contents, np.asarray(starts), np.asarray(ends))


def check_restarts(rows: Rows) -> None:
    """Checks that the restarts of a block are the positions of entries with whole keys, in order.

    Args:
        rows: All entries of the block.

    Raises:
        CorruptCheckpointError: They are not.
    """
    contents = rows.data
    end, count = _restarts(contents)
    offsets = struct.unpack_from(f"<{count}I", contents, end)
    if (last := max(offsets)) >= max(end, 1):
        raise _malformed("a restart lies outside it", expected=f"an offset below {end}", found=last)
    if [*offsets] != sorted({0, *rows.ends[:-1].tolist()}.intersection(offsets)):
        raise _malformed("its restarts are wrong")
    for offset in offsets:
        if varint.decode(contents, offset)[0]:
            raise _malformed("a restart does not point at a whole key", found=f"offset {offset}")


def _restarts(contents: bytes) -> tuple[int, int]:
    """The position at which the entries of a block end and the restart array begins, and the number of restarts.

    Raises:
        CorruptCheckpointError: The array does not fit into the block.
    """
    end = len(contents) - 4
    restarts = int.from_bytes(contents[end:], "little") if end >= 0 else 0
    end -= 4 * restarts
    if restarts < 1 or end < 0:
        raise _malformed("its restart array does not fit", found=f"{restarts} restarts in {len(contents)} bytes")
    return end, restarts


def _malformed(how: str, **facts: object) -> CorruptCheckpointError:
    """The error for a block whose checksum is right, and whose contents are wrong."""
    return CorruptCheckpointError(f"a block of the index is malformed: {how}", **facts)  # type: ignore[arg-type]
