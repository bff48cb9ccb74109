"""Checks that the entries of an index lie in their data files, and that no two of them claim the same bytes.

All entries are checked at once, since an index may have millions of them.
"""

from __future__ import annotations

import numpy as np

from milepost.bundle.catalogue import UNKNOWN, Catalogue
from milepost.bundle.format.columns import entries_of
from milepost.bundle.index import Index
from milepost.bundle.open_files import OpenFiles
from milepost.errors import CorruptCheckpointError


def check_placement(index: Index, files: OpenFiles) -> None:
    """Checks the places of all entries. All data files are opened, and nothing is read from them.

    Raises:
        CheckpointNotFoundError: A data file is missing.
        CorruptCheckpointError: An entry is damaged, reaches beyond the end of its file, or claims bytes of another entry.
        StorageError: A data file cannot be opened.
        UnsupportedError: Values of an element type cannot be read.
    """
    entries = index.with_pieces()
    sizes = np.zeros(index.shards, np.int64)
    for shard in index.shard_numbers():
        sizes[shard] = files.data_file(shard).size
    left = sizes[np.clip(entries.file, 0, index.shards - 1)] - entries.size  # sums may have more than 63 bits
    is_wrong = (entries.file != UNKNOWN) & ((entries.file >= index.shards) | (entries.start > left))
    first = entries.take(np.flatnonzero(is_wrong)[:1])
    for row, entry in zip(first.keys, entries_of(first), strict=True):
        files.file_of(index.name_of(row), entry)  # raises an error that says what is wrong
    check_apart(index, entries, files)


def check_apart(index: Index, entries: Catalogue, files: OpenFiles) -> None:
    """Checks that no two entries claim the same bytes. Nothing is opened.

    Args:
        index: The index.
        entries: All of its entries, also those of pieces.
        files: The data files.

    Raises:
        CorruptCheckpointError: Two entries do.
    """
    order = np.lexsort((entries.start, entries.file))
    order = order[(entries.file[order] != UNKNOWN) & (entries.size[order] > 0)]
    shard, start, size = entries.file[order], entries.start[order], entries.size[order]
    together = np.flatnonzero((shard[1:] == shard[:-1]) & (start[1:] - start[:-1] < size[:-1]))
    for position in together[:1].tolist():
        before, key = (index.name_of(entries.keys[row]) for row in order[position : position + 2].tolist())
        raise CorruptCheckpointError(
            "two tensors claim the same bytes",
            key=key,
            file=files.path_of(int(shard[position])) if shard[position] < index.shards else None,
            expected=f"a start at {int(start[position]) + int(size[position])} or later, where {before!r} ends",
            found=int(start[position + 1]),
        )
