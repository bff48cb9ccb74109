"""The digests of values that several processes hold, each a part. No elements are gathered, except for those of cut chunks.

::

    round 1   Each process says whether it knows all digests, because nothing has changed. If all do, there is no other round
    round 2   Each process reports the digest of each value that it holds completely. Of one that is spread, it reports the digests of the chunks
              (`milepost.bundle.digest`) that it holds completely, and the bytes of those that it shares with others. Process 0 makes the
              digests and tells them

A process that holds rows of a tensor shares at most two chunks of 64 KiB with others. One that holds columns of it shares all chunks, so there is a limit
of bytes for each value.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.bundle.digest import CHUNK, SIZE, data_of, digest_of, digest_of_value, digests_of_chunks
from milepost.distributed.rounds import Message, Rounds
from milepost.engine.digests import LiveValue
from milepost.errors import CoordinationError, UnsupportedError
from milepost.tensor import Shard, ShardedArray

_MOST_SHARED: Final = 16 << 20
"""The most bytes of cut chunks of one value that a process sends."""


class _Piece(NamedTuple):
    """A run of bytes of a value in its data.

    Attributes:
        start: Where it begins.
        size: How many bytes of the value it stands for.
        data: The digests of its chunks if it begins and ends with chunks, otherwise its bytes.
        is_whole: Whether it begins and ends with chunks.
    """

    start: int
    size: int
    data: bytes
    is_whole: bool


def digests_together(values: Sequence[LiveValue], rounds: Rounds) -> dict[str, str]:
    """The digest of each value, by its key. All processes call it with values of the same keys.

    Args:
        values: The values.
        rounds: The rounds of the save or restore.

    Raises:
        UnsupportedError: A value is spread so that too much of it would be sent.
        CoordinationError: The processes hold different values, or one of them failed.
    """
    versions = [each.version for each in values]
    known = {each.key: each.known_digest(version) for each, version in zip(values, versions, strict=True)}
    is_known = all(known.values())
    decision = rounds.exchange(
        Message({"known": is_known}),
        lambda reports: Message({"known": all(report.facts["known"] for report in reports)}),
    )
    if decision.facts["known"]:
        return {key: digest for key, digest in known.items() if digest is not None}
    done: list[str] = []
    with rounds.working(lambda: len(done)):
        report = _Report(rounds.rank)
        for each in values:
            report.add(each)
            done.append(each.key)
    decision = rounds.exchange(report.message(), lambda reports: _decided(values, reports))
    digests: dict[str, str] = decision.facts["digests"]
    return digests


class _Report:
    """What one process reports.

    Args:
        rank: The number of the process.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._whole: dict[str, str] = {}
        self._pieces: dict[str, list[tuple[int, int, bool]]] = {}
        self._data: list[bytes] = []

    def add(self, each: LiveValue) -> None:
        """Adds a value.

        Raises:
            UnsupportedError: It is spread so that too much of it would be sent.
        """
        array = each.read()
        if not isinstance(array, ShardedArray):
            self._whole[each.key] = digest_of(array, each.dtype)
            return
        listed = self._pieces[each.key] = []
        shared = 0
        for shard in array.shards:
            if self._rank != shard.holders[0] or not math.prod(shard.array.shape):
                continue  # the first of the processes that hold it reports it
            for piece in _pieces(shard, array.shape, each):
                shared += 0 if piece.is_whole else piece.size
                if shared > _MOST_SHARED:
                    raise _spread(each, array)
                listed.append((piece.start, piece.size, piece.is_whole))
                self._data.append(piece.data)

    def message(self) -> Message:
        """The report."""
        return Message({"whole": self._whole, "pieces": self._pieces}, b"".join(self._data))


def _pieces(shard: Shard, shape: tuple[int, ...], each: LiveValue) -> Iterator[_Piece]:
    """The pieces of a shard: of each of its runs the whole chunks, and what is before and after them."""
    total = math.prod(shape) * each.dtype.itemsize
    for start, run in _runs(shard, shape, each.dtype.itemsize):
        (data,) = data_of(run, each.dtype, sys.maxsize)
        end = start + len(data)
        first = min(-(-start // CHUNK) * CHUNK, end)
        last = end if end == total else max(end // CHUNK * CHUNK, first)
        for begin, stop, is_whole in ((start, first, False), (first, last, True), (last, end, False)):
            if begin < stop:
                part = data[begin - start : stop - start]
                yield _Piece(begin, stop - begin, digests_of_chunks([part]) if is_whole else bytes(part), is_whole)


def _runs(shard: Shard, shape: tuple[int, ...], itemsize: int) -> Iterator[tuple[int, Any]]:
    """The runs of elements of a shard that follow each other in the whole tensor, each after the byte at which it begins."""
    box = [(first, first + length) for first, length in zip(shard.start, shard.array.shape, strict=True)]
    axis = max((number for number, side in enumerate(box) if side != (0, shape[number])), default=0)
    strides = [math.prod(shape[number + 1 :]) * itemsize for number in range(len(shape))]
    for index in itertools.product(*(range(stop - first) for first, stop in box[:axis])):
        steps = zip((*index, 0), box, strides, strict=False)
        begin = sum((first + step) * stride for step, (first, _), stride in steps)
        cut = tuple(slice(step, step + 1) for step in index)
        yield begin, shard.array[cut] if cut else shard.array


def _decided(values: Sequence[LiveValue], reports: Sequence[Message]) -> Message:
    """The digests, from the reports of all processes by rank.

    Raises:
        CoordinationError: The processes hold different values.
    """
    joined = {each.key: _Joined(each) for each in values}
    for rank, report in enumerate(reports):
        _compare(rank, report.facts, reports[0].facts)
        position = 0
        for key, pieces in report.facts["pieces"].items():
            for start, size, is_whole in pieces:
                length = -(-size // CHUNK) * SIZE if is_whole else size
                joined[key].add(start, size, report.data[position : position + length], is_whole)
                position += length
    whole = reports[0].facts["whole"]
    return Message({"digests": {key: whole[key] if key in whole else each.digest() for key, each in joined.items()}})


def _compare(rank: int, facts: Mapping[str, Any], first: Mapping[str, Any]) -> None:
    if facts["pieces"].keys() != first["pieces"].keys() or facts["whole"] != first["whole"]:
        key = next(
            (key for key, digest in first["whole"].items() if facts["whole"].get(key) != digest),
            next(iter(facts["whole"].keys() | facts["pieces"].keys()), None),
        )
        raise CoordinationError(
            f"process {rank} holds another value than process 0, so it has no digest",
            key=key,
            expected="the same value on all processes",
            found=f"different digests on process 0 and process {rank}",
            remedy="load the same values on all processes",
        )


class _Joined:
    """A value of which several processes have reported pieces."""

    def __init__(self, each: LiveValue) -> None:
        shape = tuple(length or 0 for length in each.value.shape)
        self._each, self._shape = each, shape
        self._total = math.prod(shape) * each.dtype.itemsize
        self._chunks = np.zeros((-(-self._total // CHUNK), SIZE), np.uint8)
        self._cut: dict[int, dict[int, bytes]] = {}
        """The parts of each chunk that no process holds completely, by the byte at which each begins."""

    def add(self, start: int, size: int, data: bytes, is_whole: bool) -> None:
        """Adds a piece."""
        number = start // CHUNK
        if is_whole:
            self._chunks[number : number + len(data) // SIZE] = np.frombuffer(data, np.uint8).reshape(-1, SIZE)
            return
        while data:  # what is between two chunks belongs to one of them, unless the run is short
            room = (start // CHUNK + 1) * CHUNK - start
            self._cut.setdefault(start // CHUNK, {})[start] = data[:room]
            start, data = start + room, data[room:]

    def digest(self) -> str:
        """The digest of the value."""
        for number, parts in self._cut.items():
            chunk = b"".join(parts[start] for start in sorted(parts))
            self._chunks[number] = np.frombuffer(digests_of_chunks([chunk]), np.uint8)
        return digest_of_value(self._each.dtype, self._shape, self._chunks.tobytes())


def _spread(each: LiveValue, array: ShardedArray) -> UnsupportedError:
    return UnsupportedError(
        "this value is spread over the processes by columns, so that its digest would need all of its elements in one process",
        key=each.key,
        expected="rows of it on each process, as fully_shard() spreads parameters, or a smaller value",
        found=f"{each.dtype}[{','.join(map(str, array.shape))}], {array.layout}",
        remedy="leave it out of the digest; in a save with a base, name the values of the base in CheckpointOptions(base=..., frozen=[...]) "
        "without this one, which is then saved",
    )
