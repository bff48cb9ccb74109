"""Checks that the entries of an index lie in their data files, and that no two of them claim the same bytes.

All entries are checked at once, since an index may have millions of them. If anything is wrong, or an entry cannot be decoded
with the others, they are checked one after the other, so that an error can say which entry is wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from milepost.bundle.catalogue import UNKNOWN
from milepost.bundle.entry import decode
from milepost.bundle.index import Index
from milepost.bundle.open_files import OpenFiles
from milepost.coding.varints import Column
from milepost.errors import CorruptCheckpointError, MilepostError


def check_placement(index: Index, files: OpenFiles) -> None:
    """Checks the places of all entries. All data files are opened, and nothing is read from them.

    Raises:
        CheckpointNotFoundError: A data file is missing.
        CorruptCheckpointError: An entry is damaged, reaches beyond the end of its file, or claims bytes of another entry.
        StorageError: A data file cannot be opened.
        UnsupportedError: Values of an element type cannot be read.
    """
    files.hold()
    if not _is_right(index, files):
        _find_wrong(index, files)


def check_apart(index: Index, paths: Sequence[str]) -> None:
    """Checks that no two entries claim the same bytes. Nothing is opened.

    Args:
        index: The index.
        paths: The paths of the data files.

    Raises:
        CorruptCheckpointError: Two entries do, or an entry is damaged.
        UnsupportedError: Values of an element type cannot be read.
    """
    catalogue = index.with_pieces()
    is_decoded = catalogue.spec != UNKNOWN
    shard, offset, size = (column[is_decoded] for column in (catalogue.file, catalogue.start, catalogue.size))
    others = [decode(index.encoded(place)) for place in catalogue.others]
    if not _are_apart(
        *(
            np.append(column, np.array(more, np.int64))
            for column, more in (
                (shard, [entry.shard for entry in others]),
                (offset, [entry.offset for entry in others]),
                (size, [0 if entry.slices else entry.size for entry in others]),
            )
        )
    ):
        _find_together(
            paths, [(entry.shard, entry.offset, entry.size, key) for key, entry in index.entries() if not entry.slices]
        )


def _is_right(index: Index, files: OpenFiles) -> bool:
    """Whether all entries are found at once to lie in their files, and none in another."""
    catalogue = index.with_pieces()
    try:
        if any(not decode(index.encoded(place)).slices for place in catalogue.others):
            return False
    except MilepostError:
        return False
    is_decoded = catalogue.spec != UNKNOWN
    shard, offset, size = (column[is_decoded] for column in (catalogue.file, catalogue.start, catalogue.size))
    if not len(shard):
        return True
    sizes = np.array([files.data_file(number).size for number in range(index.shards)], np.int64)
    if int(shard.max()) >= index.shards or bool((offset + size > sizes[shard]).any()):
        return False
    return _are_apart(shard, offset, size)


def _are_apart(shard: Column, offset: Column, size: Column) -> bool:
    """Whether no two of these places have a byte in common."""
    has_bytes = size > 0
    shard, offset, size = (field[has_bytes] for field in (shard, offset, size))
    order = np.lexsort((offset, shard))
    shard, offset, end = shard[order], offset[order], (offset + size)[order]
    return not bool(((shard[:-1] == shard[1:]) & (offset[1:] < end[:-1])).any())


def _find_wrong(index: Index, files: OpenFiles) -> None:
    """Checks one entry after the other, and raises an error that says what is wrong."""
    placed: list[tuple[int, int, int, str]] = []
    for key, entry in index.entries():
        if not entry.slices:
            files.file_of(key, entry)
            placed.append((entry.shard, entry.offset, entry.size, key))
    _find_together(files.paths, placed)


def _find_together(paths: Sequence[str], placed: Iterable[tuple[int, int, int, str]]) -> None:
    """Raises an error if two tensors claim the same bytes.

    Args:
        paths: The paths of the data files.
        placed: For each tensor its data file, its first byte, how many there are, and its key.
    """
    found = sorted(place for place in placed if place[2])
    for (shard, offset, size, key), (following, start, _, other) in itertools.pairwise(found):
        if shard == following and start < offset + size:
            raise CorruptCheckpointError(
                "two tensors claim the same bytes",
                key=other,
                file=paths[shard] if shard < len(paths) else None,
                expected=f"a start at {offset + size} or later, where {key!r} ends",
                found=start,
            )
