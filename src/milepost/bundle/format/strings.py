"""String tensors.

::

    tensor := (length:varint)^n check:u32 {byte}     the lengths of n elements; their checksum; all elements, joined
    check  := masked checksum of the lengths, each as u32, or as u64 if it needs more

The checksum of the entry covers the lengths, as for ``check``, then ``check``, then the elements. Numbers that are not
varints have the byte order of the machine, also in a checksum. Source: TensorFlow 2.21,
``tensorflow/core/util/tensor_bundle/tensor_bundle.cc``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from milepost.bundle.memory import Array
from milepost.coding import varint
from milepost.coding.crc32c import crc32c, mask
from milepost.errors import CorruptCheckpointError, UnsupportedError

Order = Literal["little", "big"]

_CHECK_SIZE: Final = 4


def elements_of(array: Array) -> list[bytes]:
    """The elements of an array of strings, in row-major order. Text becomes UTF-8.

    Raises:
        UnsupportedError: An element is not a string.
    """
    elements = array.ravel().tolist()
    for position, element in enumerate(elements):
        if isinstance(element, str):
            elements[position] = element.encode("utf-8", "surrogateescape")
        elif not isinstance(element, bytes):
            raise UnsupportedError(
                "an array of objects can be stored only if they are strings",
                expected="elements that are bytes or str",
                found=f"{type(element).__name__} at position {position}",
                remedy="convert the elements to bytes, or the array to one of numbers",
            )
    return elements


def least_size(count: int) -> int:
    """The size in bytes of a tensor of ``count`` empty strings."""
    return count + _CHECK_SIZE


def encode(elements: Sequence[bytes]) -> tuple[list[bytes], int]:
    """Encodes a tensor.

    Returns:
        Its bytes, to be joined, and their checksum, not masked.

    Example:
        >>> pieces, _ = encode([b"hi"])
        >>> b"".join(pieces).hex(" ")
        '02 d8 d8 10 73 68 69'
    """
    lengths = np.fromiter(map(len, elements), np.uint64, len(elements))
    crc = _crc_of_lengths(lengths, sys.byteorder)
    check = mask(crc).to_bytes(_CHECK_SIZE, sys.byteorder)
    crc = crc32c(check, crc)
    for element in elements:
        crc = crc32c(element, crc)
    if not len(lengths) or lengths.max() < 0x80:
        return [lengths.astype(np.uint8).tobytes(), check, *elements], crc
    return [b"".join(map(varint.encode, lengths.tolist())), check, *elements], crc


def decode(data: bytes, count: int, order: Order = sys.byteorder) -> tuple[list[bytes], int]:
    """Decodes a tensor.

    Args:
        data: All of its bytes.
        count: The number of elements.
        order: The byte order of the machine that wrote it.

    Returns:
        The elements, and the checksum of the data, not masked, for the caller to compare.

    Raises:
        CorruptCheckpointError: The data is not such a tensor.
    """
    lengths, position = _lengths(data, count)
    sizes = lengths.tolist()
    end = position + _CHECK_SIZE + sum(sizes)
    if end != len(data):
        raise CorruptCheckpointError(
            "the lengths of strings do not add up", expected=f"{end} bytes", found=f"{len(data)} bytes"
        )
    crc = _crc_of_lengths(lengths, order)
    expected = int.from_bytes(data[position : position + _CHECK_SIZE], order)
    if mask(crc) != expected:
        raise CorruptCheckpointError(
            "the lengths of strings are damaged: wrong checksum",
            expected=f"{expected:#010x}",
            found=f"{mask(crc):#010x}",
        )
    crc = crc32c(memoryview(data)[position:], crc)
    position += _CHECK_SIZE
    elements = []
    for size in sizes:
        elements.append(data[position : position + size])
        position += size
    return elements, crc


def _lengths(data: bytes, count: int) -> tuple[npt.NDArray[np.uint64], int]:
    """The lengths, and the position after them."""
    if count > len(data):
        raise CorruptCheckpointError(
            "too few bytes for so many strings",
            expected=f"at least {count + _CHECK_SIZE} bytes",
            found=f"{len(data)} bytes",
        )
    short = np.frombuffer(data, np.uint8, count)
    if not count or short.max() < 0x80:
        return short.astype(np.uint64), count
    lengths = np.empty(count, np.uint64)
    position = 0
    for index in range(count):
        lengths[index], position = varint.decode(data, position)
    return lengths, position


def _crc_of_lengths(lengths: npt.NDArray[np.uint64], order: Order) -> int:
    if not len(lengths) or lengths.max() < 1 << 32:
        return crc32c(lengths.astype("<u4" if order == "little" else ">u4").tobytes())
    return crc32c(b"".join(n.to_bytes(4 if n < 1 << 32 else 8, order) for n in lengths.tolist()))
