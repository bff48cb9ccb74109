"""Checks that the entries of an index lie in their data files, and that no two of them claim the same bytes.

All entries are checked at once, since an index may have millions of them. If anything is wrong, or an entry cannot be decoded
with the others, they are checked one after the other, so that an error can say which entry is wrong.
"""

from __future__ import annotations

import itertools

import numpy as np

from milepost.bundle.entry import decode
from milepost.bundle.index import Index
from milepost.bundle.open_files import OpenFiles
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


def _is_right(index: Index, files: OpenFiles) -> bool:
    """Whether all entries are found at once to lie in their files, and none in another."""
    columns = index.all_columns()
    try:
        if any(not decode(index.encoded(place)).slices for place in columns.others):
            return False
    except MilepostError:
        return False
    is_decoded = np.ones(len(columns.spec), bool)
    is_decoded[columns.others] = False
    shard, offset, size = (field[is_decoded] for field in (columns.shard, columns.offset, columns.size))
    if not len(shard):
        return True
    sizes = np.array([files.data_file(number).size for number in range(index.shards)], np.int64)
    if int(shard.max()) >= index.shards or bool((offset + size > sizes[shard]).any()):
        return False
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
            if entry.size:
                placed.append((entry.shard, entry.offset, entry.size, key))
    placed.sort()
    for (shard, offset, size, key), (following, start, _, other) in itertools.pairwise(placed):
        if shard == following and start < offset + size:
            raise CorruptCheckpointError(
                "two tensors claim the same bytes",
                key=other,
                file=files.paths[shard],
                expected=f"a start at {offset + size} or later, where {key!r} ends",
                found=start,
            )
