"""Decodes the entries of many blocks at once.

`block.entries` takes half a microsecond for an entry, which is long for an index of hundreds of thousands. A block says where
keys are whole, and nearly all writers restart every few entries. So first all entries at a restart are decoded together, then all that follow
them, and so on to the next restart. Blocks of another form, and blocks with something wrong, are left to `block.entries`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np

from milepost.coding.varints import Column, decode_all
from milepost.errors import CorruptCheckpointError
from milepost.table.block import MOST_ENTRIES, entries_end, fits_memory

_PADDING: Final = 64
"""Bytes after the last block, so that an entry that ends early is noticed only after it was decoded."""
_LEAST: Final = 32
"""Restarts for which the calls of NumPy take less time than Python's loop."""
_LEAST_ENTRY: Final = 3
"""The bytes of the smallest entry: three lengths."""
_MOST_BETWEEN: Final = 128
"""Entries from one restart to the next. TensorFlow writes 16."""


class Rows(NamedTuple):
    """Entries of a table, in order.

    Attributes:
        keys: Each byte of a key as one character, so a key of ASCII is the text that it is.
        data: The values, with other bytes between them.
        starts: Where each value begins.
        ends: Where each value ends.
    """

    keys: list[str]
    data: bytes
    starts: Column
    ends: Column

    @classmethod
    def of(cls, pairs: Iterable[tuple[bytes, bytes]]) -> Self:
        """The rows with these keys and values.

        Example:
            >>> Rows.of([(b"a", b"xy"), (b"b", b"z")]).value(1)
            b'z'
        """
        keys, values = [], []
        for key, value in pairs:
            keys.append(key.decode("latin-1"))
            values.append(value)
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        ends = np.cumsum(lengths)
        return cls(keys, b"".join(values), ends - lengths, ends)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of some parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        before = [0, *itertools.accumulate(len(part.data) for part in parts)]
        return cls(
            list(itertools.chain.from_iterable(part.keys for part in parts)),
            b"".join(part.data for part in parts),
            *(
                np.concatenate(
                    [ends + start for ends, start in zip(column, before, strict=False)] or [np.zeros(0, np.int64)]
                )
                for column in ([part.starts for part in parts], [part.ends for part in parts])
            ),
        )

    def value(self, place: int) -> bytes:
        """The value of one row."""
        return self.data[self.starts[place] : self.ends[place]]


def decode_blocks(blocks: Sequence[bytes]) -> tuple[Rows, list[int]] | None:
    """The entries of some blocks and how many each has; None if one of the blocks must be left to `block.entries`.

    Args:
        blocks: The contents of the blocks.

    Example:
        >>> decode_blocks([b"?"]) is None
        True
    """
    found = [_runs(block) for block in blocks]
    if None in found or sum(len(each[0]) for each in found if each) < _LEAST:
        return None
    before = [0, *itertools.accumulate(map(len, blocks))]
    starts = np.concatenate([each[0] + at for each, at in zip(found, before, strict=False) if each])
    stops = np.concatenate([each[1] + at for each, at in zip(found, before, strict=False) if each])
    block_of = np.repeat(np.arange(len(blocks)), [len(each[0]) for each in found if each])
    joined = b"".join((*blocks, bytes(_PADDING)))
    most = sum(min(len(block) // _LEAST_ENTRY, MOST_ENTRIES) for block in blocks)
    steps = _steps(np.frombuffer(joined, np.uint8), starts, stops, most)
    if steps is None:
        return None
    counts = np.bincount(np.concatenate([step[0] for step in steps]), minlength=len(starts))
    first = np.cumsum(counts) - counts
    places = np.concatenate([first[step[0]] + number for number, step in enumerate(steps)])
    columns = np.empty((4, len(places)), np.int64)
    for column, parts in zip(columns, list(zip(*steps, strict=True))[1:], strict=True):
        column[places] = np.concatenate(parts)
    del steps, places  # which take as much memory again
    shared, suffixes, values, ends = columns
    of_block = np.bincount(block_of, counts, len(blocks)).astype(np.int64)
    repeated = np.bincount(np.repeat(block_of, counts), shared, len(blocks))
    if not all(map(fits_memory, map(len, blocks), of_block.tolist(), repeated.tolist())):
        return None
    text = joined.decode("latin-1")
    key = ""
    keys = [
        key := key[:same] + text[start:end]
        for same, start, end in zip(memoryview(shared), memoryview(suffixes), memoryview(values), strict=True)
    ]
    if not all(map(operator.lt, keys, itertools.islice(keys, 1, None))):
        return None
    return Rows(keys, joined, values, ends), of_block.tolist()


def _runs(block: bytes) -> tuple[Column, Column] | None:
    """Where the entries at restarts begin, and where those of the next restart begin. None if the restarts are not in order."""
    try:
        end, count = entries_end(block)
    except CorruptCheckpointError:
        return None
    if count > MOST_ENTRIES:
        return None
    starts = np.frombuffer(block, "<u4", count, end).astype(np.int64)
    if not end:
        return starts[:0], starts[:0]
    stops = np.append(starts[1:], end)
    return None if starts[0] or bool((starts >= stops).any()) else (starts, stops)


def _steps(
    data: Any, at: Column, stops: Column, most: int
) -> list[tuple[Column, Column, Column, Column, Column]] | None:
    """The first entry after each restart, then the second ones, and so on: from which restart each is, how many bytes of its key it
    shares, and where the rest of the key begins, the value begins, and the value ends. None if the entries do not end where the next restart is.

    None, too, if there are more than ``most`` entries. Each takes some 100 bytes of memory here, but as few as three in a damaged block.
    """
    steps = []
    active = np.arange(len(at))
    length = np.zeros(len(at), np.int64)
    for _ in range(_MOST_BETWEEN):
        most -= len(at)
        if most < 0:
            return None
        numbers = [data[at + place].astype(np.int64) for place in range(3)]
        suffixes = at + 3
        if any(int(each.max()) >= 0x80 for each in numbers):
            suffixes, is_there = at, np.ones(len(at), bool)
            for place in range(3):
                numbers[place], suffixes, is_whole = decode_all(data, suffixes, is_there)
                if not is_whole.all() or bool((numbers[place] > len(data)).any()):
                    return None
        shared, rest, size = numbers
        values = suffixes + rest
        ends = values + size
        if bool((shared > length).any()) or bool((ends > stops).any()):
            return None
        steps.append((active, shared, suffixes, values, ends))
        goes_on = np.flatnonzero(ends < stops)
        if not len(goes_on):
            return steps
        active, at, stops = active[goes_on], ends[goes_on], stops[goes_on]
        length = (shared + rest)[goes_on]
    return None
