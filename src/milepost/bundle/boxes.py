"""Reads boxes of tensors without reading the bytes between them.

A tensor in one run of bytes has one checksum, so it must have been verified before. The pieces of a tensor in pieces have each their own,
and are read whole and verified.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from milepost.bundle.format.entry import Entry
from milepost.bundle.format.slices import Box, ranges
from milepost.bundle.interface import BundleReader
from milepost.bundle.memory import Array, bytes_of, new_array, scatter
from milepost.bundle.transfer import CHUNK, Span, read_chunks, read_spans
from milepost.errors import MilepostError
from milepost.storage import ReadableFile
from milepost.tensor import TensorSlice

_RUN: Final = 8 << 10
"""The least bytes of a run that is faster to read alone than together with all bytes up to the next run."""
_SPANS: Final = 4096
"""How many runs are read together."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """A stored tensor that is read box by box.

    Attributes:
        reader: The checkpoint.
        key: The tensor. It must have been verified, unless ``verifies`` is true. Tensors in one run of bytes are not verified again.
    """

    reader: BundleReader
    key: str

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.reader.spec(self.key).dtype.numpy

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole."""
        return self.reader.spec(self.key).shape

    @property
    def verifies(self) -> bool:
        """Whether reading a box verifies all bytes that are read for it, so that they need not have been verified before."""
        return bool(self.reader.entry(self.key).slices)

    @property
    def in_one_run(self) -> bool:
        """Whether it is one run of bytes in a file, of which a box is read alone."""
        return self.reader.extent(self.key) is not None

    def read(self, box: TensorSlice) -> Array:
        """Reads a box into a fresh array.

        Args:
            box: Which part of the tensor.

        Raises:
            CorruptCheckpointError: The bytes of a tensor in pieces are damaged.
            StorageError: The file can no longer be read.
            MismatchError: The box reaches outside the tensor.
        """
        wanted = ranges(box, self.shape)
        target = new_array(self.reader.spec(self.key).dtype, tuple(stop - start for start, stop in wanted))
        self.read_into(box, target)
        return target

    def read_into(self, box: TensorSlice, target: Array) -> None:
        """Reads a box into an array.

        Args:
            box: Which part of the tensor.
            target: A contiguous, writable array of the element type and the shape of the box.

        Raises:
            CorruptCheckpointError: As for `read`.
            StorageError: The file cannot be read any more.
            MismatchError: The box reaches outside the tensor.
        """
        extent = self.reader.extent(self.key)
        if extent is None or not extent[1].size:
            self.reader.read_into(self.key, target, box)
            return
        file, entry = extent
        wanted = ranges(box, entry.shape)
        try:
            read_box(file, entry, wanted, target, self.key)
        except MilepostError as error:
            raise error.with_context(key=self.key) from None


def read_box(file: ReadableFile, entry: Entry, box: Box, target: Array, key: str) -> None:
    """Reads a box of a tensor that is one run of bytes in a file, without the bytes between its parts where that is faster.

    Args:
        file: The file.
        entry: The type, the shape and the place of the whole tensor.
        box: Which part of it.
        target: A contiguous, writable array of the element type and the shape of the box.
        key: The tensor, for errors.

    Raises:
        MilepostError: The file cannot be read.
    """
    if not target.size:
        return
    axis, size = _runs(box, entry.shape, entry.dtype.itemsize)
    if size < _RUN and size < target.nbytes:
        _read_over(target, box, file, entry)
        return
    data = bytes_of(target)
    spans = (
        Span(key, file, entry.offset + offset, size, data[number * size : (number + 1) * size])
        for number, offset in enumerate(_offsets(box, entry.shape, axis, entry.dtype.itemsize))
    )
    while batch := list(itertools.islice(spans, _SPANS)):
        read_spans(batch, checksum=False)


def _runs(box: Box, shape: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """The axis from which on a box has all elements, which then form runs, and the bytes of a run."""
    axis, size = len(shape), itemsize
    while axis and (axis == len(shape) or box[axis] == (0, shape[axis])):
        axis -= 1
        size *= box[axis][1] - box[axis][0]
    return axis, size


def _offsets(box: Box, shape: tuple[int, ...], axis: int, itemsize: int) -> Iterator[int]:
    """Where the runs of a box begin, in bytes from the beginning of the tensor."""
    strides = [math.prod(shape[number + 1 :]) * itemsize for number in range(len(shape))]
    first = box[axis][0] * strides[axis] if shape else 0
    outer = [
        range(start * stride, stop * stride, stride) for (start, stop), stride in zip(box[:axis], strides, strict=False)
    ]
    return (first + sum(position) for position in itertools.product(*outer))


def _read_over(target: Array, box: Box, file: ReadableFile, entry: Entry) -> None:
    """Reads from the first row of a box to the last, and keeps the elements of the box."""
    (start, stop), row = box[0], math.prod(entry.shape[1:])
    origin, position = [first for first, _ in box], start * row
    itemsize = entry.dtype.itemsize
    assert CHUNK % itemsize == 0, "a chunk holds whole elements"
    for chunk in read_chunks(file, entry.offset + position * itemsize, (stop - start) * row * itemsize):
        elements = chunk.view(entry.dtype.numpy)
        scatter(target, origin, entry.shape, position, elements)
        position += len(elements)
