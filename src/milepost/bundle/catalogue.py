"""What a file holds, in columns: one row for each tensor, whoever wrote the file.

Objects for hundreds of thousands of tensors take time and memory. A catalogue is pure data, and every reader makes one.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np

from milepost.bundle.format.entry import Entry
from milepost.coding.crc32c import masked_each
from milepost.coding.varints import Column
from milepost.storage import ReadableFile
from milepost.tensor import TensorSpec

Flags = np.ndarray[Any, np.dtype[np.bool_]]
"""Whether something is so, for each of many things."""
UNKNOWN: Final = -1
"""Stands for a number that the index of a file does not tell."""
NO_CHECKSUM: Final = -1
"""Stands for the checksum of a tensor if its file has none."""
OF_MORE: Final = -2
"""Stands for the checksum of a tensor if its file has only one of more bytes than those of the tensor. It equals no checksum."""
_MOST: Final = 1 << 62
"""The most bytes of a tensor that a column holds. No file has as many."""


class Files(Protocol):
    """Open files by number, or files that are opened when they are asked for."""

    def __getitem__(self, number: int, /) -> ReadableFile: ...


class Catalogue(NamedTuple):
    """The tensors of a file. Each column has as many members as there are tensors.

    Attributes:
        keys: Their names, each once.
        specs: Every element type and shape that occurs.
        spec: For each tensor, which of ``specs`` is its own; `UNKNOWN` if it must be asked of the reader.
        files: The files that hold the tensors.
        file: For each tensor, the number of its file; `UNKNOWN` if it is in several, or its bytes are not in a file as in memory.
        start: The position of its first byte.
        size: How many bytes it takes in the file; `UNKNOWN` if it must be read to tell.
        checksum: The checksum of its bytes, `NO_CHECKSUM` or `OF_MORE`.
        before: The checksum of bytes before the tensor with which ``checksum`` begins; 0 if there are none.
        is_run: Whether its bytes are one run in the file, as in memory.
        is_masked: Whether checksums are masked CRC-32C, as in checkpoints, and not CRC-32, as in archives.
        pieces: In how many pieces a tensor was saved, for those with several, by position.
        objects: The objects that only running code could make, and the arrays of element types that are not read, with their classes, by key. Tensors
            in them may be readable.
        unread: The keys of those objects of which nothing is read.
        not_arrays: What no array can hold, and what is no object of a class, by key: ``None``, and the empty ``[]``, ``()`` and ``{}``. A checkpoint
            has a tensor for None, and its object graph says what is empty.
        swapped: The keys of the tensors of another library that are read in the byte order that this machine does not have.
        is_nested: Whether a file of another library has lists or dicts inside each other, and not only tensors by name. An object graph tells
            it of a checkpoint.

    Example:
        >>> from milepost.tensor import DType
        >>> specs = [TensorSpec(DType.of("uint8"), (3,))]
        >>> catalogue = Catalogue.of(["a", "b"], specs, np.zeros(2, int), checksum=[zlib.crc32(b"one"), NO_CHECKSUM])
        >>> both = np.arange(2)
        >>> catalogue.unproven(both, [b"one", b"two"]).tolist(), catalogue.unproven(both, [b"two", b"two"]).tolist()
        ([], [0])
    """

    keys: Sequence[str]
    specs: Sequence[TensorSpec]
    spec: Column
    files: Files
    file: Column
    start: Column
    size: Column
    checksum: Column
    before: Column
    is_run: Flags
    is_masked: bool = False
    pieces: Mapping[int, int] = MappingProxyType({})
    objects: Mapping[str, str] = MappingProxyType({})
    unread: Collection[str] = ()
    not_arrays: Mapping[str, str] = MappingProxyType({})
    swapped: Collection[str] = ()
    is_nested: bool = False

    @classmethod
    def of(
        cls,
        keys: Sequence[str],
        specs: Sequence[TensorSpec],
        spec: Column,
        *,
        file: ReadableFile | None = None,
        start: Sequence[int] | Column | int = 0,
        checksum: Sequence[int] | Column | int = NO_CHECKSUM,
        before: Sequence[int] | Column | int = 0,
        is_run: Sequence[bool] | Column | bool = True,
    ) -> Self:
        """The tensors of one file of another library.

        Args:
            keys: As the attribute.
            specs: As the attribute.
            spec: As the attribute.
            file: The file, if the bytes of tensors are in one as in memory.
            start: As the attribute. A single number is that of all tensors, here and below.
            checksum: As the attribute.
            before: As the attribute.
            is_run: As the attribute. It counts only if there is a file.
        """
        count = len(keys)
        run = np.broadcast_to(np.array(is_run, bool) & (file is not None), count)
        first, crc, begun = (np.broadcast_to(np.array(column, np.int64), count) for column in (start, checksum, before))
        size = np.array([*(min(each.nbytes, _MOST) for each in specs), UNKNOWN], np.int64)[spec]
        files = [] if file is None else [file]
        return cls(keys, specs, spec, files, np.where(run, 0, UNKNOWN), first, size, crc, begun, run)

    @classmethod
    def of_extents(
        cls,
        keys: Sequence[str],
        specs: Sequence[TensorSpec],
        spec: Column,
        extents: Iterable[tuple[ReadableFile, int] | None],
    ) -> Self:
        """Tensors of which each is described by itself, and of whose checksums nothing is known.

        Args:
            keys: As the attribute.
            specs: As the attribute.
            spec: As the attribute.
            extents: The file and the first byte of each tensor; None if it is not one run of bytes as in memory.
        """
        known: list[tuple[ReadableFile | None, int]] = [extent or (None, 0) for extent in extents]
        files = {id(file): file for file, _ in known if file is not None}
        numbers = {id(None): UNKNOWN} | {each: number for number, each in enumerate(files)}
        file = np.array([numbers[id(each)] for each, _ in known], np.int64)
        return cls.of(keys, specs, spec, start=[start for _, start in known], checksum=OF_MORE)._replace(
            files=[*files.values()], file=file, is_run=file != UNKNOWN
        )

    @classmethod
    def joined(cls, parts: Sequence[Catalogue]) -> Self:
        """The tensors of several catalogues with checksums of one kind, one after the other."""
        shifted: list[Catalogue] = []
        specs: list[TensorSpec] = []
        files: list[ReadableFile] = []
        for part in parts:
            spec = np.where(part.spec == UNKNOWN, UNKNOWN, part.spec + len(specs))
            used, file = np.unique(part.file, return_inverse=True)  # `UNKNOWN` is the least
            is_any_unknown = UNKNOWN in used
            file = np.where(part.file == UNKNOWN, UNKNOWN, file - is_any_unknown + len(files))
            shifted.append(part._replace(spec=spec, file=file))
            specs += part.specs
            files += [part.files[number] for number in used[int(is_any_unknown) :].tolist()]
        return cls(
            [*chain.from_iterable(part.keys for part in parts)],
            specs,
            _one(part.spec for part in shifted),
            files,
            _one(part.file for part in shifted),
            _one(part.start for part in parts),
            _one(part.size for part in parts),
            _one(part.checksum for part in parts),
            _one(part.before for part in parts),
            _one(part.is_run for part in parts).astype(bool),
            swapped=[*chain.from_iterable(part.swapped for part in parts)],
        )

    def with_entries(self, entries: Mapping[int, Entry]) -> Self:
        """The same tensors, of which some are described by entries.

        Args:
            entries: Their entries, by position.
        """
        if not entries:
            return self
        specs = [*self.specs]
        numbers = {spec: number for number, spec in enumerate(specs)}
        rows = []
        for entry in entries.values():
            spec = entry.spec
            number = numbers.setdefault(spec, len(specs))
            if number == len(specs):
                specs.append(spec)
            if entry.slices:
                size = UNKNOWN if spec.dtype.is_bytes else min(spec.nbytes, _MOST)
                rows.append((number, UNKNOWN, 0, size, NO_CHECKSUM, False))
            else:
                rows.append((number, entry.shard, entry.offset, entry.size, entry.crc, not spec.dtype.is_bytes))
        changed = self._replace(
            specs=specs,
            spec=self.spec.copy(),
            file=self.file.copy(),
            start=self.start.copy(),
            size=self.size.copy(),
            checksum=self.checksum.copy(),
            is_run=self.is_run.copy(),
            pieces={position: len(entry.slices) for position, entry in entries.items() if entry.slices},
        )
        columns = changed.spec, changed.file, changed.start, changed.size, changed.checksum, changed.is_run
        for column, values in zip(columns, zip(*rows, strict=True), strict=True):
            column[[*entries]] = values
        return changed

    def take(self, which: Column) -> Self:
        """Some of the tensors, by position. None of them is in pieces."""
        return self._replace(
            keys=[*map(self.keys.__getitem__, which.tolist())],
            spec=self.spec[which],
            file=self.file[which],
            start=self.start[which],
            size=self.size[which],
            checksum=self.checksum[which],
            before=self.before[which],
            is_run=self.is_run[which],
        )

    def by_key(self) -> Self:
        """The same tensors, sorted by key."""
        return self.take(np.array(sorted(range(len(self.keys)), key=self.keys.__getitem__), np.int64))

    @property
    def others(self) -> list[int]:
        """The positions of the tensors that the reader must be asked for."""
        return np.flatnonzero(self.spec == UNKNOWN).tolist()

    def spec_of_each(self) -> list[TensorSpec]:
        """The element type and shape of each tensor."""
        return [*map(self.specs.__getitem__, self.spec.tolist())]

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors in memory, if none of them share any."""
        counts = np.bincount(self.spec, minlength=len(self.specs)).tolist()
        return sum(count * spec.nbytes for count, spec in zip(counts, self.specs, strict=True))

    def unproven(self, which: Column, data: Sequence[bytes]) -> Column:
        """Those of some tensors whose bytes do not prove that they are undamaged, by their numbers among these.

        Args:
            which: The positions of the tensors.
            data: The bytes of each, as they were read from its place.
        """
        checksum = self.checksum[which]
        is_open = checksum != NO_CHECKSUM
        if is_open.any():
            if self.is_masked:
                is_open &= masked_each(data) != checksum
            else:
                checksums = map(zlib.crc32, data, self.before[which].tolist())
                is_open &= np.fromiter(checksums, np.int64, len(data)) != checksum
        return np.flatnonzero(is_open)


def numbered(specs: Iterable[TensorSpec]) -> tuple[list[TensorSpec], Column]:
    """The element types and shapes of some tensors: all that occur, and for each tensor which of them is its own."""
    of_each = [*specs]
    known = {id(spec): spec for spec in of_each}
    numbers = {each: number for number, each in enumerate(known)}
    return [*known.values()], np.array([*map(numbers.__getitem__, map(id, of_each))], np.int64)


def _one(columns: Iterable[Column | Flags]) -> Column:
    return np.concatenate([np.zeros(0, np.int64), *columns])
