"""Decodes all entries of an index at once, into one column for each field.

Nearly all entries have the form that writers give them: type, shape, and then the fields of the place in the order of their numbers. These
are decoded together, in a fraction of the time. Entries of another form, such as those of tensors in pieces, and entries with something wrong,
are left to `milepost.bundle.format.entry.decode`.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np

from milepost.bundle.catalogue import UNKNOWN, Catalogue
from milepost.bundle.format.entry import Entry, spec_of
from milepost.bundle.format.messages import BundleEntry
from milepost.coding import varints
from milepost.coding.protobuf import parse
from milepost.coding.varints import Column
from milepost.errors import MilepostError
from milepost.table import Rows
from milepost.tensor import TensorSpec

_SHARD, _OFFSET, _SIZE, _CRC = 0x18, 0x20, 0x28, 0x35
"""The tags of the fields of a place."""
_PADDING: Final = 256
"""Bytes after the last entry, so that an entry that ends early is noticed only after it was decoded."""
_MOST: Final = 1 << 62
"""Places beyond this one are left to `decode`, so that sums of them are correct."""
_MOST_SHARD: Final = (1 << 31) - 1
_TOGETHER: Final = 1 << 15
"""Entries that are decoded at once. Their columns stay in the cache of a processor."""
_MOST_HEAD: Final = 4 + 127
"""Bytes of the longest type and shape that is decoded here."""
_UNUSUAL: Final = (-1, 0, 0, 0)
"""The meaning of a head that is left to `decode`."""
_MASKS: Final = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
"""By a number of bytes, the bits of so many."""
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
"""What sums of words are multiplied by, so that different ones seldom have one sum."""
_HALF: Final = np.uint64(32)
"""Half of the bits of a word."""


def decode_all(rows: Rows) -> Catalogue:
    """Decodes entries.

    Args:
        rows: The entries, each with its key.

    Returns:
        The tensors. The fields of those that are left to `decode` have no meaning.

    Example:
        >>> from milepost.bundle.format.entry import encode
        >>> from milepost.tensor import DType
        >>> entry = encode(DType.of("float32"), (2,), offset=7, size=8)
        >>> ends = np.array([len(entry), len(entry) + 1])
        >>> catalogue = decode_all(Rows(["a", "b"], entry + b"?", np.array([0, len(entry)]), ends))
        >>> catalogue.specs[catalogue.spec[0]], int(catalogue.start[0]), catalogue.others
        (float32[2], 7, [1])
    """
    keys, data, starts, ends = rows
    heads = _Heads()
    columns = np.zeros((5, len(starts)), np.int64)
    fits = np.zeros(len(starts), bool)
    for first in range(0, len(starts), _TOGETHER):
        batch = slice(first, first + _TOGETHER)
        begin, end = int(starts[batch][0]), int(ends[batch][-1])
        part = np.frombuffer(data[begin:end] + bytes(_PADDING), np.uint8)
        fits[batch] = _decode(part, starts[batch] - begin, ends[batch] - begin, heads, columns[:, batch])
    spec, shard, offset, size, crc = columns
    spec[~fits] = UNKNOWN
    none = np.broadcast_to(np.int64(0), len(keys))
    is_run = np.array([*(not each.dtype.is_bytes for each in heads.specs), False])[spec]
    return Catalogue(keys, heads.specs, spec, (), shard, offset, size, crc, none, is_run, is_masked=True)


def entries_of(catalogue: Catalogue) -> list[Entry]:
    """The entries of the tensors. Those that are left to `decode` have no meaning."""
    specs = [*((spec.dtype, spec.shape) for spec in catalogue.specs), (None, None)]  # the last is for `UNKNOWN`
    dtypes, shapes = ([specs[number][part] for number in catalogue.spec.tolist()] for part in (0, 1))
    columns = (column.tolist() for column in (catalogue.file, catalogue.start, catalogue.size, catalogue.checksum))
    rows = zip(dtypes, shapes, *columns, itertools.repeat(()), strict=False)
    # `Entry` itself is a function in Python, which would take most of the time
    return list(map(tuple.__new__, itertools.repeat(Entry), rows))


def _decode(data: Any, starts: Column, ends: Column, heads: _Heads, columns: Any) -> Any:
    """Decodes entries into ``columns``, and returns of which entries these are right."""
    # of each head: which of the specs it means or -1, the least size of the tensor, whether that is its size, and its own length
    spec, least, is_exact, length = heads.meanings(data, starts, ends)
    at = starts + length
    fits = spec >= 0
    values = []
    for tag in (_SHARD, _OFFSET, _SIZE):
        is_there = (at < ends) & (data[at] == tag)
        value, at, is_whole = varints.decode_all(data, at + is_there, is_there)
        fits &= is_whole & (at <= ends)
        at = np.minimum(at, ends)
        values.append(value)
    shard, offset, size = values
    has_crc = (at < ends) & (data[at] == _CRC)
    crc = sum(data[at + 1 + byte].astype(np.int64) << 8 * byte for byte in range(4))
    fits &= at + 5 * has_crc == ends
    fits &= (shard <= _MOST_SHARD) & (offset < _MOST) & (size < _MOST)
    fits &= (size == least) | ((size > least) & (is_exact == 0))
    for column, field in zip(columns, (spec, shard, offset, size, crc * has_crc), strict=True):
        column[:] = field
    return fits


class _Heads:
    """What entries begin with: a type and a shape. A checkpoint of many tensors has few of them.

    Attributes:
        specs: Every element type and shape that has occurred.
    """

    def __init__(self) -> None:
        self.specs: list[TensorSpec] = []
        self._numbers: dict[bytes, int] = {}
        self._meanings: list[tuple[int, int, int, int]] = []

    def meanings(self, data: Any, starts: Column, ends: Column) -> Any:
        """What each of some entries begins with, as `_meaning` says it, in columns."""
        lengths = np.minimum(data[starts + 3].astype(np.int64) + 4, _MOST_HEAD)
        lengths[(data[starts + 3] >= 0x80) | (starts + lengths > ends)] = 0
        words = [_words(data, starts + byte, lengths - byte) for byte in range(0, int(lengths.max(initial=0)), 8)]
        # a new run begins where one of the words is not that of the entry before
        is_new = np.ones(len(starts), bool)
        is_new[1:] = lengths[1:] != lengths[:-1]
        for word in words:
            is_new[1:] |= word[1:] != word[:-1]
        runs = np.flatnonzero(is_new)
        sums = lengths[runs].astype(np.uint64)
        for word in words:
            sums = (sums ^ (sums >> _HALF)) * _FACTOR + word[runs]
        _, kinds, kind = np.unique(sums, return_index=True, return_inverse=True)
        examples = runs[kinds]
        numbers = [
            self._number(data[start : start + length].tobytes())
            for start, length in zip(starts[examples].tolist(), lengths[examples].tolist(), strict=True)
        ]
        meanings = np.array([self._meanings[number] for number in numbers], np.int64).reshape(-1, 4)[kind]
        # two heads may have one sum
        example = examples[kind]
        is_same = lengths[runs] == lengths[example]
        for word in words:
            is_same &= word[runs] == word[example]
        meanings[~is_same] = _UNUSUAL
        return np.repeat(meanings, np.diff(runs, append=len(starts)), axis=0).T

    def _number(self, head: bytes) -> int:
        number = self._numbers.get(head)
        if number is None:
            number = self._numbers[head] = len(self._meanings)
            self._meanings.append(_meaning(head, self.specs))
        return number


def _words(data: Any, at: Column, lengths: Column) -> Any:
    """Up to eight bytes at each of some positions, as one number."""
    # numbers that overlap, since one begins at each byte
    words = np.ndarray((len(data) - 7,), "<u8", data, 0, (1,))
    return words[np.minimum(at, len(words) - 1)] & _MASKS[np.clip(lengths, 0, 8)]


def _meaning(head: bytes, specs: list[TensorSpec]) -> tuple[int, int, int, int]:
    """What an entry begins with. A type and shape that is new is added to the list."""
    is_usual = len(head) > 3 and head[0] == 0x08 and head[1] < 0x80 and head[2] == 0x12 and head[3] < 0x80
    if is_usual and len(head) == 4 + head[3]:
        try:
            entry = parse(BundleEntry, head, what="an entry of the index")
            spec, least = spec_of(entry.dtype, entry.shape.SerializeToString(), entry.element_type)
        except MilepostError:
            return _UNUSUAL
        if least < _MOST:
            specs.append(spec)
            return len(specs) - 1, least, int(not spec.dtype.is_bytes), len(head)
    return _UNUSUAL
