"""The index of a checkpoint whose data files several processes have written.

::

    contribution := wholes tensors                   what one process writes
    wholes       := column of keys, column of entries
    tensors      := column of keys, of heads, of sizes, of pieces: of tensors of which the process has written pieces
    head         := elements:u64 fields              of the whole tensor: its number of elements; ``dtype`` and ``shape`` of its entry
    sizes        := {elements:u64  length of end:u32  length of entry:u32  length of slice:u32}      of each piece
    pieces       := {end entry slice}                of each piece
    end          := what the slice key of the piece has after `milepost.bundle.format.slices.slice_key_start`
    slice        := the field ``slices`` of the tensor's entry, with its tag
    column       := n:u64 (length:u32)^n {byte}      the lengths of n members; all members, joined

Numbers are little-endian. A repeated field of a message is its encoded elements, one after the other. So the entry of a tensor in pieces is its head,
followed by the slices from all processes.

There may be a million pieces, and process 0 merges them alone. So it does little for each process' part of a tensor, and parses all
parts of a tensor in one step.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.bundle.format.entry import encode
from milepost.bundle.format.messages import BundleEntry
from milepost.bundle.format.slices import KEY_START, box_message, slice_key, slice_key_start
from milepost.bundle.writer import header
from milepost.errors import CoordinationError
from milepost.table import TableWriter
from milepost.tensor import TensorSlice, TensorSpec

_COUNT: Final = struct.Struct("<Q")
_FIELDS: Final = 3
"""The number of columns for tensors of which a process has written pieces, and the number of fields of a piece."""
_SIZES: Final = np.dtype([("elements", "<u8"), ("lengths", "<u4", 3)])


def contribution(
    entries: Mapping[bytes, bytes], pieces: Mapping[bytes, tuple[TensorSpec, Sequence[TensorSlice]]]
) -> bytes:
    """The part of the index that one process contributes.

    Args:
        entries: The entries of the tensors that it has written.
        pieces: For each tensor of which it has written pieces, under its key, the boxes.
    """
    wholes = {key: entry for key, entry in entries.items() if not key.startswith(KEY_START)}
    parts = [_part(key, spec, boxes, entries) for key, (spec, boxes) in pieces.items()]
    columns: list[Sequence[bytes]] = [[*wholes], [*wholes.values()], [*pieces]]
    columns += [[part[number] for part in parts] for number in range(_FIELDS)]
    return b"".join(map(_column, columns))


def merged_index(contributions: Sequence[bytes], sharded: Collection[bytes], shards: int) -> bytes:
    """The index of a checkpoint.

    Args:
        contributions: The part of each process. Bytes after it are ignored.
        sharded: The keys of the tensors that the processes hold together.
        shards: The number of data files.

    Raises:
        CoordinationError: Two processes have written the same, or all together have not written all of a tensor.
    """
    wholes: dict[bytes, bytes] = {}
    parts: dict[bytes, list[bytes]] = defaultdict(list)
    for contribution in contributions:
        keys, position = _parse_column(contribution, 0)
        entries, position = _parse_column(contribution, position)
        before = len(wholes)
        wholes.update(zip(keys, entries, strict=True))
        if len(wholes) < before + len(keys):
            raise _twice(_repeated(contributions))
        keys, position = _parse_column(contribution, position)
        heads, position = _parse_column(contribution, position)
        sizes, position = _parse_column(contribution, position)
        pieces, _ = _parse_column(contribution, position)
        for key, head, size, piece in zip(keys, heads, sizes, pieces, strict=True):
            parts[key] += (head, size, piece)
    missing = [key for key in sharded if key not in wholes and key not in parts]
    if missing:
        raise _incomplete(min(missing), "an entry", "nothing")
    index = TableWriter()
    index.add([header(shards)])
    for key in sorted(parts):
        if key in wholes:
            raise _twice(key)
        tensor = _joined(key, parts.pop(key))
        wholes[key] = tensor.entry
        start = slice_key_start(key)
        index.add((start + end, tensor.pieces[end]) for end in sorted(tensor.pieces))
    index.add((key, wholes[key]) for key in sorted(wholes))
    return index.finish()


class _MergedTensor(NamedTuple):
    """A tensor in pieces: its entry, and those of its pieces by the ends of their slice keys."""

    entry: bytes
    pieces: Mapping[bytes, bytes]


def _part(
    key: bytes, spec: TensorSpec, boxes: Sequence[TensorSlice], entries: Mapping[bytes, bytes]
) -> tuple[bytes, bytes, bytes]:
    """Head, sizes and pieces of what one process has written of a tensor."""
    start = len(slice_key_start(key))
    sizes = np.empty(len(boxes), _SIZES)
    pieces: list[bytes] = []
    for number, box in enumerate(boxes):
        full = slice_key(key, box)
        piece = full[start:], entries[full], BundleEntry(slices=[box_message(box)]).SerializeToString()
        sizes[number] = math.prod(box.shape(spec.shape)), tuple(map(len, piece))
        pieces += piece
    return _COUNT.pack(spec.size) + encode(spec.dtype, spec.shape), sizes.tobytes(), b"".join(pieces)


def _joined(key: bytes, parts: Sequence[bytes]) -> _MergedTensor:
    """A tensor, from the head, sizes and pieces of each process that has written some.

    Raises:
        CoordinationError: It is not complete, or two processes have written a piece.
    """
    head = parts[0]
    sizes = np.frombuffer(b"".join(parts[1::_FIELDS]), _SIZES)
    fields = _cut(b"".join(parts[2::_FIELDS]), sizes["lengths"].reshape(-1))
    pieces = dict(zip(fields[0::_FIELDS], fields[1::_FIELDS], strict=True))
    if len(pieces) < len(sizes):
        raise _twice(key)
    (expected,), count = _COUNT.unpack_from(head), int(sizes["elements"].sum())
    if count != expected:
        raise _incomplete(key, f"{expected} elements", f"{count} elements")
    return _MergedTensor(b"".join((head[_COUNT.size :], *fields[2::_FIELDS])), pieces)


def _column(values: Sequence[bytes]) -> bytes:
    lengths = np.array([*map(len, values)], "<u4").tobytes()
    return b"".join((_COUNT.pack(len(values)), lengths, *values))


def _parse_column(data: bytes, position: int) -> tuple[list[bytes], int]:
    """The values of a column, and the position after it."""
    (count,) = _COUNT.unpack_from(data, position)
    lengths = np.frombuffer(data, "<u4", count, position + _COUNT.size)
    start = position + _COUNT.size + lengths.nbytes
    return _cut(data, lengths, start), start + int(lengths.sum())


def _cut(data: bytes, lengths: np.ndarray[Any, Any], start: int = 0) -> list[bytes]:
    ends = (start + np.cumsum(lengths, dtype=np.int64)).tolist()
    return [data[begin:end] for begin, end in itertools.pairwise([start, *ends])]


def _repeated(contributions: Sequence[bytes]) -> bytes:
    """A key that two processes have in their first column."""
    seen: set[bytes] = set()
    for contribution in contributions:
        keys = _parse_column(contribution, 0)[0]
        if not seen.isdisjoint(keys):
            return min(seen.intersection(keys))
        seen.update(keys)
    raise AssertionError("no key is repeated")


def _twice(key: bytes) -> CoordinationError:
    return CoordinationError(
        "two processes have written the same tensor; nothing was saved", key=key.decode(errors="replace")
    )


def _incomplete(key: bytes, expected: str, found: str) -> CoordinationError:
    return CoordinationError(
        "the processes have not written each element of a tensor once; nothing was saved",
        key=key.decode(errors="replace"),
        expected=expected,
        found=found,
        remedy="check that all processes hold the tensor with the same mesh and placements",
    )
