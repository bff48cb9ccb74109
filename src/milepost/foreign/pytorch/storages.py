"""Reads the tensors of a PyTorch file. They are parts of storages, which are runs of bytes in the file."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from milepost.bundle.catalogue import NO_CHECKSUM, OF_MORE, Catalogue, numbered
from milepost.bundle.counting import counter
from milepost.bundle.memory import Array, bytes_of, swap_bytes
from milepost.bundle.transfer import read_chunks
from milepost.errors import CorruptCheckpointError
from milepost.foreign.near_reads import NearReads
from milepost.foreign.pytorch.tensors import CONJUGATED, NEGATED, TorchStorage, View
from milepost.foreign.stored import Stored
from milepost.storage import ReadableFile

UNKNOWN: Final = 0
"""The checksum of a record if PyTorch was told to write none."""

_BLOCK: Final = 1 << 16
"""Bytes that are read at once to verify small records."""


_SIGN: Final = -1 if sys.byteorder == "little" else 0
"""The byte of a number in which its sign is, the highest bit."""


class StorageRecord(NamedTuple):
    """Where the bytes of a storage are.

    Attributes:
        offset: The position of the first byte.
        size: How many bytes there are.
        crc: Their CRC-32; 0 if the file has none.
    """

    offset: int
    size: int
    crc: int = UNKNOWN


def wrong_checksum(record: StorageRecord, found: int) -> CorruptCheckpointError:
    """The error for a record whose checksum differs from the one in the file."""
    return CorruptCheckpointError(
        f"the PyTorch file is damaged at byte {record.offset}: wrong checksum",
        expected=f"{record.crc:#010x}",
        found=f"{found:#010x}",
    )


class TorchStorages:
    """Reads the tensors of one file.

    Args:
        file: The file.
        swapped: Whether a machine of the other byte order wrote it.

    Attributes:
        records: Where each storage is, by its key.
    """

    def __init__(self, file: ReadableFile, *, swapped: bool) -> None:
        self.file = file
        self.records: dict[str, StorageRecord] = {}
        self._swapped = swapped
        self._checked: set[str] = set()
        self._near = NearReads(file, _BLOCK)

    def add(self, storage: TorchStorage, record: StorageRecord | None) -> None:
        """Adds a storage.

        Args:
            storage: The storage, with the length that its tensors need.
            record: Where it is; None if the file does not have it.

        Raises:
            CorruptCheckpointError: The file does not have it, or it is too short.
        """
        if record is None or record.size < storage.nbytes or record.offset + record.size > self.file.size:
            raise CorruptCheckpointError(
                f"the storage {storage.key!r:.80} of the PyTorch file is missing or cut off",
                file=self.file.path,
                expected=f"{storage.nbytes} bytes",
                found="nothing"
                if record is None
                else f"{record.size} bytes at byte {record.offset} of {self.file.size}",
            )
        self.records[storage.key] = record

    def check(self, tensor: Stored) -> None:
        """Verifies the checksum of a tensor's storage.

        Raises:
            CorruptCheckpointError: The checksum is wrong.
        """
        view: View = tensor.place
        record = self.records[view.storage.key]
        if record.crc == UNKNOWN or view.storage.key in self._checked:
            return
        crc = 0
        if record.size <= _BLOCK:
            if (count := counter()) is not None:
                count(record.size)
            crc = zlib.crc32(self._near.read(record.offset, record.size))
        else:
            for chunk in read_chunks(self.file, record.offset, record.size):
                crc = zlib.crc32(chunk, crc)
        if crc != record.crc:
            raise wrong_checksum(record, crc).with_context(file=self.file.path)
        self._checked.add(view.storage.key)

    @property
    def done(self) -> set[int]:
        """The positions of the records that `check` has verified."""
        return {self.records[key].offset for key in self._checked}

    def has_checksum(self, tensor: Stored) -> bool:
        """Whether the record of a tensor's storage has a checksum."""
        return self.records[tensor.place.storage.key].crc != UNKNOWN

    def extent(self, tensor: Stored) -> tuple[ReadableFile, int] | None:
        """The file and the position of a tensor, if it is one run of bytes there as in memory; otherwise None."""
        view: View = tensor.place
        if view.strides is not None or view.flags or self._swapped:
            return None
        return self.file, self.records[view.storage.key].offset + view.offset

    def catalogue(self, tensors: Mapping[str, Stored]) -> Catalogue:
        """The columns of some tensors, by name."""
        views: list[View] = [tensor.place for tensor in tensors.values()]
        records = [self.records[view.storage.key] for view in views]
        columns = zip(*records, strict=True) if records else ((), (), ())
        begin, size, crc = (np.array(column, np.int64) for column in columns)
        offset = np.array([view.offset for view in views], np.int64)
        specs, spec = numbered(tensor.spec for tensor in tensors.values())
        catalogue = Catalogue.of(
            [*tensors],
            specs,
            spec,
            file=self.file,
            start=begin + offset,
            is_run=[view.strides is None and not view.flags and not self._swapped for view in views],
        )
        checksum = np.where(catalogue.size == size, crc, OF_MORE)
        return catalogue._replace(checksum=np.where(crc == UNKNOWN, NO_CHECKSUM, checksum))

    def read_into(self, tensor: Stored, destination: Array) -> None:
        """Reads a tensor into a contiguous array of its type and shape."""
        if not destination.size:
            return
        view: View = tensor.place
        start = self.records[view.storage.key].offset + view.offset
        target = bytes_of(destination)
        if view.strides is None:
            self.file.read_into(start, target)
        else:
            shape = tensor.spec.shape[: len(view.strides)]
            width = destination.nbytes // max(1, int(np.prod(shape, dtype=object)))
            last = sum((length - 1) * step for length, step in zip(shape, view.strides, strict=True))
            stored = np.empty(last + width, np.uint8)
            self.file.read_into(start, stored)
            elements = np.lib.stride_tricks.as_strided(stored, (*shape, width), (*view.strides, 1), writeable=False)
            target.reshape((*shape, width))[...] = elements
        if self._swapped:
            swap_bytes(target, tensor.spec.dtype)
        if view.flags:
            parts = 2 if tensor.spec.dtype.name.startswith("complex") else 1
            signs = target.reshape((-1, parts, tensor.spec.dtype.itemsize // parts))[..., _SIGN]
            if NEGATED in view.flags:
                signs ^= 0x80
            if CONJUGATED in view.flags:
                signs[:, 1] ^= 0x80
