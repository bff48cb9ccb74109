"""Decodes many varints at once, which `varint.decode` does one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

Column = np.ndarray[Any, np.dtype[np.int64]]
"""One whole number for each of many things."""
_MOST_BITS = 63


def decode_all(data: Any, at: Column, is_there: Any) -> tuple[Column, Column, Any]:
    """Decodes one number at each of some positions.

    Args:
        data: The bytes, as an array. At least ten follow the last position.
        at: The positions.
        is_there: Where there is a number. Others become 0, and their positions stay as they are.

    Returns:
        The numbers, the positions after them, and whether each is less than 2**63. The others have no meaning.

    Example:
        >>> data = np.frombuffer(bytes.fromhex("ac02 07") + bytes(10), np.uint8)
        >>> [each.tolist() for each in decode_all(data, np.array([0, 2]), np.array([True, True]))]
        [[300, 7], [2, 3], [True, True]]
    """
    value = np.zeros(len(at), np.int64)
    more = is_there
    for shift in range(0, _MOST_BITS, 7):
        if not more.any():
            break
        byte = data[at].astype(np.int64)
        value |= np.where(more, (byte & 0x7F) << shift, 0)
        at = at + more
        more = more & (byte >= 0x80)
    return value, at, ~more
