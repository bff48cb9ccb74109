"""Varints: unsigned integers in base 128, with the least significant group first.

::

    varint := {1ggggggg} 0ggggggg      7 bits a byte; the high bit says that more follow; at most 10 bytes

Source: Protocol Buffers, "Encoding"; LevelDB's ``util/coding`` is the same. Longer forms of a small number, with
zero groups at the end, are accepted, as both accept them.
"""

from __future__ import annotations

from typing import Final

from milepost.errors import CorruptCheckpointError

MAX_LENGTH: Final = 10
"""The size in bytes of the longest varint, which is that of a 64-bit number."""
_KEPT: Final = 1 << 14
"""The numbers below this one, of one or two bytes, are kept in `encoded` once they have been encoded."""


def encode(n: int) -> bytes:
    """Encodes a number from 0 to 2**64 - 1.

    Example:
        >>> encode(300).hex()
        'ac02'
    """
    if 0 <= n < 0x80:
        return n.to_bytes(1, "little")
    if not 0 <= n < 1 << 64:
        raise ValueError(f"{n} is not an unsigned 64-bit number")
    groups = bytearray()
    while n >= 0x80:
        groups.append(n & 0x7F | 0x80)
        n >>= 7
    groups.append(n)
    return bytes(groups)


class _Encoded(dict[int, bytes]):
    def __missing__(self, n: int) -> bytes:
        data = encode(n)
        if n < _KEPT:
            self[n] = data
        return data


encoded: Final = _Encoded()
"""The encodings of all numbers: ``encoded[n]`` is ``encode(n)``, and takes no call if ``n`` is small and was asked for before."""


def decode(data: bytes | memoryview, position: int = 0) -> tuple[int, int]:
    """Decodes the number at ``position``.

    Returns:
        The number, and the position after it.

    Raises:
        CorruptCheckpointError: The data ends inside the number, or it has more than 64 bits.

    Example:
        >>> decode(b"..\\xac\\x02", 2)
        (300, 4)
    """
    value = shift = 0
    for byte in data[position : position + MAX_LENGTH]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if value >> 64:
                break
            return value, position + shift // 7
    raise CorruptCheckpointError(
        f"no number at byte {position}",
        expected="a varint of at most 64 bits",
        found=bytes(data[position : position + MAX_LENGTH]).hex() or "the end of the data",
    )
