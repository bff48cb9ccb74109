"""Variant tensors, for example iterators of ``tf.data``. milepost does not interpret the elements.

::

    tensor  := {element}
    element := length:varint {byte} check:u32      a serialized VariantTensorDataProto
    check   := masked checksum of all bytes before it, from the first element on, with each length as u64

The checksum of the entry also covers the last ``check``. Numbers that are not varints are little-endian: TensorFlow
does not read variants from big-endian machines. Source: TensorFlow 2.21,
``tensorflow/core/util/tensor_bundle/tensor_bundle.cc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from milepost.coding import varint
from milepost.coding.crc32c import crc32c, mask
from milepost.errors import CorruptCheckpointError

_CHECK_SIZE: Final = 4


def least_size(count: int) -> int:
    """The size in bytes of a tensor of ``count`` empty elements."""
    return count * (1 + _CHECK_SIZE)


def encode(elements: Sequence[bytes]) -> tuple[list[bytes], int]:
    """Encodes a tensor.

    Returns:
        Its bytes, to be joined, and their checksum, not masked.
    """
    pieces: list[bytes] = []
    crc = 0
    for element in elements:
        crc = crc32c(element, crc32c(len(element).to_bytes(8, "little"), crc))
        check = mask(crc).to_bytes(_CHECK_SIZE, "little")
        crc = crc32c(check, crc)
        pieces += (varint.encode(len(element)), element, check)
    return pieces, crc


def decode(data: bytes, count: int) -> tuple[list[bytes], int]:
    """Decodes a tensor.

    Args:
        data: All of its bytes.
        count: The number of elements.

    Returns:
        The elements, and the checksum of the data, not masked, for the caller to compare.

    Raises:
        CorruptCheckpointError: The data is not such a tensor.
    """
    elements = []
    position = crc = 0
    for index in range(count):
        length, position = varint.decode(data, position)
        end = position + length
        check = data[end : end + _CHECK_SIZE]
        if len(check) < _CHECK_SIZE:
            raise _damaged(index, f"{length} bytes and a checksum", f"{max(0, len(data) - position)} bytes")
        element = data[position:end]
        crc = crc32c(element, crc32c(length.to_bytes(8, "little"), crc))
        expected = int.from_bytes(check, "little")
        if mask(crc) != expected:
            raise _damaged(index, f"checksum {expected:08x}", f"{mask(crc):08x}")
        crc = crc32c(check, crc)
        elements.append(element)
        position = end + _CHECK_SIZE
    if position != len(data):
        raise _damaged(count, "the end of the tensor", f"{len(data) - position} more bytes")
    return elements, crc


def _damaged(index: int, expected: str, found: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(f"element {index} of a variant tensor is damaged", expected=expected, found=found)
