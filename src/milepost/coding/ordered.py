"""Numbers and strings in an encoding whose bytes sort as the values do. The keys of tensor slices consist of them.

::

    num  := count:u8 {byte}            unsigned; big-endian without leading zeros, after the number of bytes
    str  := {byte} 00 01               00 is written 00 ff, and ff is written ff 00
    snum := big-endian two's complement in the fewest bytes n for which -2**(7n-1) <= v < 2**(7n-1); then the
            leading n bits are all set (v >= 0) or all cleared (v < 0), and the next bit, the sign, ends them:
            10vvvvvv                                  -64 <= v < 64, shown for v >= 0
            110vvvvv vvvvvvvv                         -8192 <= v < 8192
            1110vvvv vvvvvvvv vvvvvvvv                ... up to n = 10 for 64 bits

Source: TensorFlow 2.21, ``tensorflow/core/lib/strings/ordered_code``; ``num``, ``str`` and ``snum`` are its
``NumIncreasing``, ``String`` and ``SignedNumIncreasing``. Only the shortest form of each value is accepted.
"""

from __future__ import annotations

import re
from typing import Final

from milepost.errors import CorruptCheckpointError

_MOST_SIGNED: Final = 10
"""The size in bytes of the longest snum, which is that of a 64-bit number."""

_END: Final = b"\x00\x01"
_ESCAPED: Final = (b"\x00\xff", b"\xff\x00")
_SPECIAL: Final = re.compile(rb"[\x00\xff].", re.DOTALL)


def encode_num(n: int) -> bytes:
    """Encodes a number from 0 to 2**64 - 1.

    Example:
        >>> encode_num(300).hex()
        '02012c'
    """
    if not 0 <= n < 1 << 64:
        raise ValueError(f"{n} is not an unsigned 64-bit number")
    length = (n.bit_length() + 7) // 8
    return bytes([length]) + n.to_bytes(length, "big")


def decode_num(data: bytes, position: int = 0) -> tuple[int, int]:
    """Decodes the number at ``position``.

    Returns:
        The number, and the position after it.

    Raises:
        CorruptCheckpointError: There is no valid number at ``position``.
    """
    if position >= len(data):
        raise _damaged(data, position, "num")
    length = data[position]
    end = position + 1 + length
    if length > 8 or end > len(data) or (length and not data[position + 1]):
        raise _damaged(data, position, "num")
    return int.from_bytes(data[position + 1 : end], "big"), end


def encode_str(text: bytes) -> bytes:
    """Encodes a byte string.

    Example:
        >>> encode_str(b"a\\x00").hex(" ")
        '61 00 ff 00 01'
    """
    return b"\x00\xff".join(part.replace(b"\xff", b"\xff\x00") for part in text.split(b"\x00")) + _END


def decode_str(data: bytes, position: int = 0) -> tuple[bytes, int]:
    """Decodes the byte string at ``position``.

    Returns:
        The string, and the position after its end mark.

    Raises:
        CorruptCheckpointError: There is no valid string at ``position``.
    """
    text = bytearray()
    start = position
    for special in _SPECIAL.finditer(data, position):
        pair = special.group()
        text += data[start : special.start()]
        start = special.end()
        if pair == _END:
            return bytes(text), start
        if pair not in _ESCAPED:
            break
        text.append(pair[0])
    raise _damaged(data, position, "str")


def encode_snum(n: int) -> bytes:
    """Encodes a number from -2**63 to 2**63 - 1.

    Example:
        >>> [encode_snum(n).hex() for n in (0, 64, -1)]
        ['80', 'c040', '7f']
    """
    if not -(1 << 63) <= n < 1 << 63:
        raise ValueError(f"{n} is not a signed 64-bit number")
    magnitude = n if n >= 0 else ~n
    length = magnitude.bit_length() // 7 + 1
    bits = magnitude | _header(length)
    if n < 0:
        bits ^= (1 << 8 * length) - 1
    return bits.to_bytes(length, "big")


def decode_snum(data: bytes, position: int = 0) -> tuple[int, int]:
    """Decodes the number at ``position``.

    Returns:
        The number, and the position after it.

    Raises:
        CorruptCheckpointError: There is no valid number at ``position``.
    """
    window = data[position : position + _MOST_SIGNED]
    negative = not window or window[0] < 0x80
    bits = int.from_bytes(window, "big")
    if negative:
        bits ^= (1 << 8 * len(window)) - 1
    # The complement of the leading ones is as long as what follows them.
    length = 8 * len(window) - (bits ^ (1 << 8 * len(window)) - 1).bit_length()
    if not 0 < length <= len(window):
        raise _damaged(data, position, "snum")
    magnitude = (bits >> 8 * (len(window) - length)) ^ _header(length)
    if magnitude >> 63 or magnitude.bit_length() // 7 + 1 != length:
        raise _damaged(data, position, "snum")
    return ~magnitude if negative else magnitude, position + length


def _header(length: int) -> int:
    return ((1 << length) - 1) << 7 * length


def _damaged(data: bytes, position: int, kind: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"no ordered {kind} at byte {position}",
        expected=f"the shortest form of a {kind}",
        found=data[position : position + 12].hex() or "the end of the data",
    )
