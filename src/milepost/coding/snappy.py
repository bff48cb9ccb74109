"""Snappy decompression, for blocks that another writer has compressed. milepost never compresses.

::

    data    := length:varint {element}        length of the decompressed bytes, at most 2**32 - 1
    element := literal | copy                 the low two bits of its first byte, the tag, say which
    literal := tag[00] byte^n                 n = tag>>2 plus 1; 60..63 there: n - 1 follows in 1..4 bytes
    copy    := tag[01] low:u8                 n = (tag>>2 & 7) + 4, offset = (tag>>5) << 8 | low
             | tag[10] offset:u16             n = (tag>>2) + 1
             | tag[11] offset:u32             n = (tag>>2) + 1

Integers are little-endian. A copy appends n bytes, which begin ``offset`` bytes before the end of the output. With
n > offset it repeats bytes that it has just appended. Source: google/snappy, ``format_description.txt``.
"""

from __future__ import annotations

from typing import Final

from milepost.coding import varint
from milepost.errors import CorruptCheckpointError

MOST_FROM_BYTE: Final = 22
"""The largest output for one byte of input, rounded up. The best element, a copy of 64 bytes, takes 3 bytes."""


def decompress(data: bytes, *, limit: int) -> bytes:
    """Decompresses untrusted bytes.

    Args:
        data: One whole Snappy stream, without framing.
        limit: The largest number of bytes to produce.

    Raises:
        CorruptCheckpointError: The data is damaged, or claims to hold more than ``limit``.

    Example:
        >>> decompress(b"\\x06\\x04ab\\x0d\\x02"[:4] + b"\\x01\\x02", limit=100)
        b'ababab'
    """
    length, position = varint.decode(data)
    if length > min(limit, MOST_FROM_BYTE * len(data), 0xFFFFFFFF):
        raise _damaged("claims to hold too much", length, f"at most {limit} bytes, from {len(data)} compressed")
    output = bytearray()
    end = len(data)
    while position < end:
        tag = data[position]
        position += 1
        size = (tag >> 2) + 1
        kind = tag & 3
        if kind == 0:
            if size > 60:
                extra = size - 60
                size = int.from_bytes(data[position : position + extra], "little") + 1
                position += extra
            if position + size > end:
                raise _damaged("ends inside a literal", f"{end} bytes", f"{position + size} bytes")
            output += data[position : position + size]
            position += size
        else:
            if kind == 1:
                size = (tag >> 2 & 7) + 4
                width = 1
                offset = (tag >> 5) << 8
            else:
                width = kind * 2 - 2
                offset = 0
            if position + width > end:
                raise _damaged("ends inside a copy", f"{end} bytes", f"{position + width} bytes")
            offset |= int.from_bytes(data[position : position + width], "little")
            position += width
            start = len(output) - offset
            if start < 0 or not offset:
                raise _damaged("copies from outside the output", offset, f"an offset from 1 to {len(output)}")
            if size <= offset:
                output += output[start : start + size]
            else:
                output += (output[start:] * (size // offset + 1))[:size]
        if len(output) > length:
            raise _damaged("holds more than it claims", f"{len(output)} bytes", f"{length} bytes")
    if len(output) != length:
        raise _damaged("holds less than it claims", f"{len(output)} bytes", f"{length} bytes")
    return bytes(output)


def _damaged(how: str, found: object, expected: object) -> CorruptCheckpointError:
    return CorruptCheckpointError(f"the Snappy data {how}", found=found, expected=expected)
