"""Where tensors are in files of another library, in columns. So very many can be read and compared with their checksums together."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

import numpy as np

from milepost.coding.varints import Column
from milepost.storage import ReadableFile

NOWHERE: Final = -1
"""The number of the file of a tensor that is in no file as in memory."""
NO_CHECKSUM: Final = -1
"""Stands for the checksum of a tensor if its file has none."""
_OF_OTHERS: Final = -2
"""Stands for the checksum of a tensor if it is not the checksum of its own bytes alone. No CRC-32 is negative."""


class Places(NamedTuple):
    """The places of some tensors. Each column has as many members as there are tensors.

    Attributes:
        files: The files that hold them.
        file: For each tensor, which of the files it is in; `NOWHERE` if it is not one run of bytes there as in memory.
        start: The position of its first byte.
        crc: Its CRC-32, or `NO_CHECKSUM`, or a number that no checksum equals if the file has only one of more than this tensor.
        before: The CRC-32 of bytes before the tensor with which ``crc`` begins; 0 if there are none.

    Example:
        >>> places = Places.of([None, None], crc=[zlib.crc32(b"one"), NO_CHECKSUM])
        >>> places.unproven([b"one", b"two"]).tolist(), places.unproven([b"two", b"two"]).tolist()
        ([], [0])
    """

    files: Sequence[ReadableFile]
    file: Column
    start: Column
    crc: Column
    before: Column

    @classmethod
    def of(
        cls,
        extents: Iterable[tuple[ReadableFile, int] | None],
        crc: Sequence[int] | Column | None = None,
        before: Sequence[int] | Column | None = None,
    ) -> Self:
        """Places as `ForeignFile.extent` describes each of them.

        Args:
            extents: The file and the first byte of each tensor.
            crc: As the attribute. By default, nothing is known of the checksums.
            before: As the attribute.
        """
        known = [extent or (None, 0) for extent in extents]
        files = {id(file): file for file, _ in known if file is not None}
        numbers = {id(None): NOWHERE} | {each: number for number, each in enumerate(files)}
        file = np.array([numbers[id(file)] for file, _ in known], np.int64)
        start = np.array([start for _, start in known], np.int64)
        return cls(
            [*files.values()],
            file,
            start,
            np.full(len(known), _OF_OTHERS) if crc is None else np.array(crc, np.int64),
            np.zeros(len(known), np.int64) if before is None else np.array(before, np.int64),
        )

    @classmethod
    def in_one(
        cls,
        file: ReadableFile,
        start: Sequence[int] | Column,
        is_run: Sequence[bool] | Column | bool = True,
        crc: Sequence[int] | Column | int = NO_CHECKSUM,
        before: Sequence[int] | Column | int = 0,
        is_checksum_of_more: Sequence[bool] | Column | bool = False,
    ) -> Self:
        """Places in one file.

        Args:
            file: The file.
            start: As the attribute.
            is_run: Whether each tensor is one run of bytes there as in memory.
            crc: As the attribute.
            before: As the attribute.
            is_checksum_of_more: Whether ``crc`` is that of more than the tensor and what is before it.
        """
        starts = np.array(start, np.int64)
        columns = (
            np.where(is_run, 0, NOWHERE),
            np.where(is_checksum_of_more, _OF_OTHERS, crc),
            np.array(before, np.int64),
        )
        number, checksum, begun = (np.broadcast_to(column, starts.shape) for column in columns)
        return cls([file], number, starts, checksum, begun)

    @classmethod
    def joined(cls, parts: Sequence[Places], positions: Sequence[Sequence[int]]) -> Self:
        """The places of several groups of tensors as one.

        Args:
            parts: The places of each group.
            positions: Where those of each group are in the result. Together they are all positions, from 0 on.
        """
        files: list[ReadableFile] = []
        columns = np.empty((4, sum(map(len, positions))), np.int64)
        for part, at in zip(parts, positions, strict=True):
            file = np.where(part.file == NOWHERE, NOWHERE, part.file + len(files))
            columns[:, at] = file, part.start, part.crc, part.before
            files += part.files
        return cls(files, *columns)

    def take(self, which: Column) -> Self:
        """Some of them."""
        return self._replace(
            file=self.file[which], start=self.start[which], crc=self.crc[which], before=self.before[which]
        )

    def unproven(self, data: Sequence[bytes]) -> Column:
        """The tensors whose bytes do not prove that they are undamaged, by position.

        Args:
            data: The bytes of each, as they were read from its place.
        """
        is_open = self.crc != NO_CHECKSUM
        if is_open.any():
            is_open &= np.fromiter(map(zlib.crc32, data, self.before.tolist()), np.int64, len(data)) != self.crc
        found: Column = np.flatnonzero(is_open)
        return found
