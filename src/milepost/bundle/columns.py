"""Decodes all entries of an index at once, into one column for each field.

`decode` takes some microseconds for an entry, which is long for a list of hundreds of thousands. Nearly all entries have the form
that writers give them: type, shape, and then the fields of the place in the order of their numbers. These are decoded together. Entries of
another form, such as those of tensors in pieces, and entries with something wrong, are left to `decode`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from milepost.bundle.entry import parse_head
from milepost.errors import MilepostError
from milepost.tensor import TensorSpec

_SHARD, _OFFSET, _SIZE, _CRC = 0x18, 0x20, 0x28, 0x35
"""The tags of the fields of a place."""
_PADDING: Final = 64
"""Bytes after the last entry, so that an entry that ends early is noticed only after it was decoded."""
_MOST: Final = 1 << 62
"""Places beyond this one are left to `decode`, so that sums of them are correct."""
_MOST_SHARD: Final = (1 << 31) - 1

Column = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Columns:
    """The fields of some entries, one column for each.

    Attributes:
        specs: Every element type and shape that occurs.
        spec: For each entry, which of ``specs`` is its own.
        shard: The data file.
        offset: The first byte in it.
        size: The number of bytes.
        crc: Their masked checksum.
        others: The positions of the entries that are left to `decode`. Their fields have no meaning.
    """

    specs: list[TensorSpec]
    spec: Column
    shard: Column
    offset: Column
    size: Column
    crc: Column
    others: list[int]


def decode_all(rows: Sequence[bytes]) -> Columns:
    """Decodes entries.

    Example:
        >>> from milepost.bundle.entry import encode
        >>> from milepost.tensor import DType
        >>> columns = decode_all([encode(DType.of("float32"), (2,), offset=7, size=8), b"?"])
        >>> columns.specs[columns.spec[0]], int(columns.offset[0]), columns.others
        (float32[2], 7, [1])
    """
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    data = np.frombuffer(b"".join((*rows, bytes(_PADDING))), np.uint8)
    ends = np.cumsum(lengths)
    heads: dict[bytes, int] = {}
    numbers = [heads.setdefault(row[: 4 + row[3]] if len(row) > 3 else b"", len(heads)) for row in rows]
    which = np.array(numbers, np.int64)
    specs: list[TensorSpec] = []
    # of each head: which of `specs` it means or -1, the least size of the tensor, whether that is its size, and its own length
    meanings = np.array([_meaning(head, specs) for head in heads], np.int64).reshape(-1, 4)[which]
    spec, least, is_exact, head_length = meanings.T
    at = ends - lengths + head_length
    fits = spec >= 0
    found = []
    for tag in (_SHARD, _OFFSET, _SIZE):
        value, at, is_whole = _varints(data, at, (at < ends) & (data[at] == tag))
        fits &= is_whole & (at <= ends)
        at = np.minimum(at, ends)
        found.append(value)
    shard, offset, size = found
    has_crc = (at < ends) & (data[at] == _CRC)
    crc = sum((data[at + 1 + byte].astype(np.int64) << 8 * byte for byte in range(4)), np.zeros(len(rows), np.int64))
    crc[~has_crc] = 0
    fits &= at + np.where(has_crc, 5, 0) == ends
    fits &= (shard <= _MOST_SHARD) & (offset < _MOST) & (size < _MOST)
    fits &= (size == least) | ((size > least) & (is_exact == 0))
    return Columns(specs, spec, shard, offset, size, crc, [int(place) for place in np.flatnonzero(~fits)])


def _meaning(head: bytes, specs: list[TensorSpec]) -> tuple[int, int, int, int]:
    """What an entry begins with. A type and shape that is new is added to the list."""
    is_usual = len(head) > 3 and head[0] == 0x08 and head[1] < 0x80 and head[2] == 0x12 and head[3] < 0x80
    if is_usual and len(head) == 4 + head[3]:
        try:
            spec, least = parse_head(head)
        except MilepostError:
            return -1, 0, 0, 0
        if least < _MOST:
            specs.append(spec)
            return len(specs) - 1, least, int(not spec.dtype.is_bytes), len(head)
    return -1, 0, 0, 0


def _varints(data: Any, at: Column, is_there: Any) -> tuple[Column, Column, Any]:
    """Decodes one number of each entry that has it: the numbers, the positions after them, and whether they are less than 2**63."""
    value = np.zeros(len(at), np.int64)
    at = at + is_there
    more = is_there
    for shift in range(0, 63, 7):
        if not more.any():
            break
        byte = data[np.minimum(at, len(data) - 1)]
        value |= np.where(more, (byte & 0x7F).astype(np.int64) << shift, 0)
        at = at + more
        more = more & (byte >= 0x80)
    return value, at, ~more
