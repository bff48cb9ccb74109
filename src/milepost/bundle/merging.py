"""The index of a checkpoint whose data files several processes have written.

::

    contribution := length entries parts             what one process writes
    length       := 8 bytes, little-endian           of entries
    entries      := pairs of  key, entry             of whole tensors, and under their slice keys of pieces
    parts        := pairs of  key, part              of tensors of which the process has written pieces
    part         := count size length head slices*
    count, size  := 8 bytes, little-endian           elements of these pieces, and of the whole tensor
    head         := the fields ``dtype`` and ``shape`` of an entry; its length comes before, in 8 bytes
    slices       := the field ``slices`` of an entry, with its tag, once for each piece
    pairs        := n (length of key)^n (length of value)^n key^n value^n        n in 8 bytes, lengths in 4, little-endian

A field that is repeated is what its parts are, joined: so the entry of a tensor in pieces is its head, followed by the slices
from all processes.
"""

from __future__ import annotations

import itertools
import math
import struct
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from milepost.bundle.entry import encode
from milepost.bundle.messages import BundleEntry, BundleHeader
from milepost.bundle.slices import box_message
from milepost.bundle.writer import HEADER_KEY, VERSION
from milepost.errors import CoordinationError
from milepost.table import TableWriter
from milepost.tensor import TensorSlice, TensorSpec

_COUNT: Final = struct.Struct("<Q")
_PART: Final = struct.Struct("<QQQ")


def contribution(
    entries: Mapping[bytes, bytes], pieces: Mapping[bytes, tuple[TensorSpec, Sequence[TensorSlice]]]
) -> bytes:
    """What one process adds to the index.

    Args:
        entries: The entries of what it has written.
        pieces: For each tensor of which it has written pieces, under its key, the boxes.
    """
    parts = {}
    for key, (spec, boxes) in pieces.items():
        count = sum(math.prod(box.shape(spec.shape)) for box in boxes)
        head = encode(spec.dtype, spec.shape)
        slices = BundleEntry(slices=map(box_message, boxes)).SerializeToString()
        parts[key] = _PART.pack(count, spec.size, len(head)) + head + slices
    first = _pairs(entries)
    return _COUNT.pack(len(first)) + first + _pairs(parts)


def merged_index(contributions: Sequence[bytes], sharded: Collection[bytes], shards: int) -> bytes:
    """The index of a checkpoint.

    Args:
        contributions: What each process adds.
        sharded: The keys of the tensors that the processes hold together.
        shards: The number of data files.

    Raises:
        CoordinationError: Two processes have written the same, or all together have not written all of a tensor.
    """
    rows: dict[bytes, bytes] = {}
    joined = _JoinedParts()
    for each in contributions:
        end = _COUNT.size + _COUNT.unpack_from(each)[0]
        keys, values = _parse_pairs(memoryview(each)[_COUNT.size : end])
        before = len(rows)
        rows.update(zip(keys, values, strict=True))
        if len(rows) < before + len(keys):
            raise _twice(contributions, keys)
        joined.add(*_parse_pairs(memoryview(each)[end:]))
    rows.update(joined.entries())
    missing = [key for key in sharded if key not in rows]
    if missing:
        raise _incomplete(min(missing), "an entry", "nothing")
    header = BundleHeader(num_shards=shards, endianness=int(sys.byteorder == "big"))
    header.version.producer = VERSION
    index = TableWriter()
    index.add(HEADER_KEY, header.SerializeToString())
    for key in sorted(rows):
        index.add(key, rows[key])
    return index.finish()


class _JoinedParts:
    """The entries of the tensors that several processes have written, as far as their parts are known."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}
        self._sizes: dict[bytes, int] = {}
        self._joined: dict[bytes, list[bytes]] = {}

    def add(self, keys: Sequence[bytes], parts: Sequence[bytes]) -> None:
        """Adds the parts of one process."""
        for key, part in zip(keys, parts, strict=True):
            count, size, length = _PART.unpack_from(part)
            end = _PART.size + length
            if key in self._counts:
                self._counts[key] += count
                self._joined[key].append(part[end:])
            else:
                self._counts[key], self._sizes[key] = count, size
                self._joined[key] = [part[_PART.size :]]

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """The entries.

        Raises:
            CoordinationError: A tensor is not complete.
        """
        for key, parts in self._joined.items():
            if self._counts[key] != self._sizes[key]:
                raise _incomplete(key, f"{self._sizes[key]} elements", f"{self._counts[key]} elements")
            yield key, b"".join(parts)


def _pairs(pairs: Mapping[bytes, bytes]) -> bytes:
    lengths = np.array([*map(len, pairs), *map(len, pairs.values())], "<u4").tobytes()
    return b"".join((_COUNT.pack(len(pairs)), lengths, *pairs, *pairs.values()))


def _parse_pairs(data: memoryview) -> tuple[list[bytes], list[bytes]]:
    (count,) = _COUNT.unpack_from(data)
    lengths = np.frombuffer(data, "<u4", 2 * count, _COUNT.size)
    start = _COUNT.size + lengths.nbytes
    ends = (start + np.cumsum(lengths, dtype=np.int64)).tolist()
    whole = bytes(data)
    found = [whole[begin:end] for begin, end in itertools.pairwise([start, *ends])]
    return found[:count], found[count:]


def _twice(contributions: Sequence[bytes], keys: Sequence[bytes]) -> CoordinationError:
    seen: set[bytes] = set()
    for each in contributions:
        end = _COUNT.size + _COUNT.unpack_from(each)[0]
        for key in _parse_pairs(memoryview(each)[_COUNT.size : end])[0]:
            if key in seen:
                keys = [key]
            seen.add(key)
    return CoordinationError(
        "two processes have written one tensor; nothing was saved", key=keys[0].decode(errors="replace")
    )


def _incomplete(key: bytes, expected: str, found: str) -> CoordinationError:
    return CoordinationError(
        "the processes have not written each element of a tensor once; nothing was saved",
        key=key.decode(errors="replace"),
        expected=expected,
        found=found,
        remedy="look whether all processes hold the tensor with the same mesh and placements",
    )
