"""Whether two tensors of a checkpoint are equal."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from milepost.bundle.interface import BundleReader
from milepost.bundle.transfer import read_chunks
from milepost.tensor import TensorSlice


@runtime_checkable
class Comparing(Protocol):
    """A reader that compares tensors in a way of its own."""

    def has_equal(self, key: str, other: str) -> bool | None:
        """Whether two tensors have the same element type, shape and elements, bit by bit; None if `are_equal` is to find out."""


def are_equal(reader: BundleReader, key: str, other: str) -> bool:
    """Whether two tensors have the same element type, shape and elements, bit by bit.

    Tensors with different checksums are not read. Others are compared byte by byte, in chunks or piece by piece, since
    equal checksums do not prove equal bytes.

    Args:
        reader: The open checkpoint.
        key: One tensor.
        other: The other one.

    Raises:
        MilepostError: As for `BundleReader.read`.
    """
    if key == other:
        return True
    known = reader.has_equal(key, other) if isinstance(reader, Comparing) else None
    if known is not None:
        return known
    if reader.spec(key) != reader.spec(other):
        return False
    first, second = reader.extent(key), reader.extent(other)
    if first is not None and second is not None:
        if (first[1].size, first[1].crc) != (second[1].size, second[1].crc):
            return False
        chunks = (read_chunks(file, entry.offset, entry.size) for file, entry in (first, second) if entry.size)
        return all(np.array_equal(one, two) for one, two in zip(*chunks, strict=True))
    boxes: list[TensorSlice | None] = [*reader.entry(key).slices] or [None]
    return all(_same(reader.read(key, box), reader.read(other, box)) for box in boxes)


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    return np.array_equal(first, second) if first.dtype == object else first.tobytes() == second.tobytes()
