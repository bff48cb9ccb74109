"""Encodes fields of protocol buffer messages, for messages of which there may be millions.

::

    field := tag varint                a number; a number that is 0 is left out
           | tag byte byte byte byte   a fixed32, with the least significant byte first; the same holds for it
           | tag size:varint {byte}    text or a message; text that is empty is left out

To make a message object and to serialize it takes several times as long. Fields must come in the order of their numbers, as
serialized messages have them. Source: Protocol Buffers, "Encoding".
"""

from __future__ import annotations

import numpy as np

from milepost.coding.varint import encoded
from milepost.coding.varints import Column


def number_field(tag: bytes, value: int) -> bytes:
    """A field that is a number of at least 0.

    Example:
        >>> number_field(b"\\x08", 300).hex(" ")
        '08 ac 02'
    """
    return tag + encoded[value] if value else b""


def number_fields(tag: bytes, values: Column) -> list[bytes]:
    """`number_field` for each number of a column.

    Args:
        tag: The tag, of one byte.
        values: Numbers of at least 0.
    """
    most = int(values.max(initial=0))
    rows = np.zeros((len(values), 1 + max(1, -(-most.bit_length() // 7))), np.uint8)
    rows[:, 0] = np.where(values, ord(tag), 0)
    for column in range(1, rows.shape[1]):
        rows[:, column] = values & 0x7F | np.where(values >= 0x80, 0x80, 0)
        values = values >> 7
    # NumPy takes zeros at the end of a byte string for padding, and the last byte of a varint is no zero
    fields: list[bytes] = rows.view(f"S{rows.shape[1]}").reshape(-1).tolist()
    return fields


def fixed32_field(tag: bytes, value: int) -> bytes:
    """A field that is a fixed32."""
    return tag + value.to_bytes(4, "little") if value else b""


def fixed32_fields(tag: bytes, values: Column) -> list[bytes]:
    """`fixed32_field` for each number of a column.

    Args:
        tag: The tag, of one byte.
        values: Numbers from 0 to 2**32 - 1.
    """
    rows = np.empty((len(values), 5), np.uint8)
    rows[:, 0] = ord(tag)
    rows[:, 1:] = values.astype("<u4").view(np.uint8).reshape(-1, 4)
    fields: list[bytes] = rows.view("V5").reshape(-1).tolist()
    for index in np.flatnonzero(values == 0).tolist():
        fields[index] = b""
    return fields


def text_field(tag: bytes, value: str) -> bytes:
    """A field that is text.

    Raises:
        UnicodeEncodeError: The text is not valid Unicode.
    """
    data = value.encode()
    return tag + encoded[len(data)] + data if data else b""


def message_field(tag: bytes, fields: bytes) -> bytes:
    """A field that is a message, even if it has no fields.

    Example:
        >>> message_field(b"\\x12", text_field(b"\\x0a", "hi")).hex(" ")
        '12 04 0a 02 68 69'
    """
    return tag + encoded[len(fields)] + fields
