"""The part of a save that each of several processes writes, and the data on which all must agree.

Every value is of one of four kinds:

- *sharded*: the processes hold boxes of it (`milepost.tensor.ShardedArray`). One of the processes that hold a box writes it, and
  what they hold is compared (`milepost.distributed.replicas`).
- *alike*: all processes hold all of it, such as the parameters of data-parallel training. One process writes each piece. The
  checksums of all processes are compared, so that no difference is lost in silence.
- *own*: every process has its own value, such as that of a generator of random numbers or of an iterator over data. Each process
  writes its value, under a name with the number of the process.
- *first*: process 0 writes its value, as the program has said (``CheckpointOptions(first_process=...)``).

A sharded tensor of few bytes is not written in pieces. The processes send its pieces to process 0 in messages, and process 0 writes the
whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from milepost.bundle.format.slices import Box, relative
from milepost.bundle.format.strings import elements_of
from milepost.bundle.memory import blocks, bytes_of
from milepost.coding.crc32c import crc32c
from milepost.coding.digest import blake2b
from milepost.distributed.replicas import Replicas, holders_in_words
from milepost.distributed.shares import HeldShare, shares
from milepost.engine.left_out import NOTHING, LeftOut
from milepost.engine.options import CheckpointOptions
from milepost.engine.plan import PlannedWrite
from milepost.errors import UnsupportedError
from milepost.graph.adapter import Array
from milepost.graph.saved.object_graph import Node, ObjectGraph, SavedValue
from milepost.saving.save import LiveState, Member
from milepost.tensor import DType, PiecewiseArray, ShardedArray, TensorSlice, TensorSpec
from milepost.tensor.slice import WHOLE

_SMALL: Final = 64 << 10
"""Bytes of a sharded tensor up to which process 0 writes it as a whole."""
_BLOCK: Final = 8 << 20
_FIRST: Final = (0,)


class SmallPiece(NamedTuple):
    """A piece of a small sharded tensor, which process 0 writes.

    Attributes:
        key: The tensor.
        box: Where it is in the tensor.
        data: The elements, row-major.
    """

    key: str
    box: Box
    data: bytes


@dataclass(frozen=True)
class SharePlan:
    """The part of one process in a save of several.

    Attributes:
        member: Which process it is.
        graph: The object graph as this process sees it.
        writes: The values that it writes.
        files: How many data files it writes.
        small: The pieces that it gives to process 0.
        sharded: All sharded tensors, by key.
        own: The values of which this process has its own, each with the number of its node.
        outline: The values that all processes must have, in order: the key of each, and its type, shape and layout in words.
        checksums: By key, the checksum of each value that all processes must hold alike.
        replicas: The checksum of each box that this process and others hold, by the set of processes that hold the same boxes.
        structure: A digest of what all processes must have: objects, names, types, shapes and layouts.
        values: A digest of ``checksums``.
        left_out: What the save leaves out on purpose.
    """

    member: Member
    graph: ObjectGraph
    writes: Sequence[PlannedWrite]
    files: int
    small: Sequence[SmallPiece]
    sharded: Mapping[str, TensorSpec]
    own: Sequence[tuple[int, SavedValue]]
    outline: Sequence[tuple[str, str]]
    checksums: Mapping[str, int]
    replicas: Replicas
    structure: str
    values: str
    left_out: LeftOut = NOTHING


class _Holdings:
    """What one process holds, by the four kinds of values.

    Args:
        member: Which process it is.
        state: The state that it holds.

    Attributes:
        held: The boxes that it holds, for `shares`.
        pieces: For each of these boxes, the number of its value, the box, and its elements.
        small: The numbers of the sharded tensors that process 0 writes as a whole.
        sharded: As in `SharePlan`, and so are the others.
    """

    def __init__(self, member: Member, state: LiveState) -> None:
        self._member = member
        self._state = state
        self._everyone = tuple(range(member.size))
        self.held: list[HeldShare] = []
        self.pieces: list[tuple[int, Box, Any]] = []
        self.small: set[int] = set()
        self.sharded: dict[str, TensorSpec] = {}
        self.outline: list[tuple[str, str]] = []
        self.checksums: dict[str, int] = {}
        self.replicas: dict[str, dict[str, int]] = {}

    def add(self, number: int, write: PlannedWrite, array: Array | PiecewiseArray | ShardedArray) -> None:
        """Adds a value.

        Args:
            number: Its number.
            write: Its key, element type and shape.
            array: What this process holds of it.

        Raises:
            UnsupportedError: Every process has its own value, but this one is spread over processes.
        """
        if isinstance(array, ShardedArray):
            self._add_sharded(number, write, array)
            return
        start = (0,) * len(write.shape)
        if number in self._state.own:
            self._hold(number, write.dtype, start, array, (self._member.rank,))
            return
        self.outline.append((write.key, str(TensorSpec(write.dtype, write.shape))))
        holders = _FIRST if number in self._state.first else self._everyone
        if number not in self._state.first:
            self.checksums[write.key] = checksum(array, write.dtype)
        if self._member.rank in holders:
            self._hold(number, write.dtype, start, array, holders)

    def _add_sharded(self, number: int, write: PlannedWrite, array: ShardedArray) -> None:
        spec = TensorSpec(write.dtype, write.shape)
        if number in self._state.own:
            raise UnsupportedError(
                "a value of which every process has its own is spread over processes",
                key=write.key,
                found=f"{spec}, {array.layout}",
                remedy="leave its path out of CheckpointOptions(each_process=...)",
            )
        self.outline.append((write.key, f"{spec}, {array.layout}"))
        self.sharded[write.key] = spec
        if is_small(spec):
            self.small.add(number)
        for shard in array.shards:
            if math.prod(shard.array.shape):
                self._hold(number, write.dtype, shard.start, shard.array, shard.holders)
                if len(shard.holders) > 1:
                    together = self.replicas.setdefault(holders_in_words(shard.holders), {})
                    together[f"{write.key} at {shard.start}"] = checksum(shard.array, write.dtype)

    def _hold(
        self,
        number: int,
        dtype: DType,
        start: tuple[int, ...],
        array: Array | PiecewiseArray,
        holders: tuple[int, ...],
    ) -> None:
        box = tuple((first, first + length) for first, length in zip(start, array.shape, strict=True))
        itemsize = 0 if dtype.is_bytes else dtype.itemsize
        size = math.prod(array.shape) * max(itemsize, 1)
        self.held.append(HeldShare(len(self.pieces), box, itemsize, size, holders))
        self.pieces.append((number, box, array))


def plan_share(
    state: LiveState, member: Member, options: CheckpointOptions
) -> tuple[SharePlan, list[Array | PiecewiseArray]]:
    """Plans what one process writes. Every process plans for itself.

    Args:
        state: The state that this process holds.
        member: Which process it is.
        options: Into how many data files each process writes.

    Returns:
        The plan, and the elements of each of its writes.

    Raises:
        UnsupportedError: A value of which every process has its own is spread over processes.
    """
    holdings = _Holdings(member, state)
    for number, (write, array) in enumerate(zip(state.writes, state.arrays, strict=True)):
        holdings.add(number, write, array)
    writes, arrays, small = [], [], []
    for share in shares(holdings.held, member.rank):
        number, piece_box, array = holdings.pieces[share.number]
        write = state.writes[number]
        part = _part(array, piece_box, share.box)
        if number in holdings.small:
            data = np.ascontiguousarray(np.asarray(part), write.dtype.numpy).tobytes()
            small.append(SmallPiece(write.key, share.box, data))
            continue
        writes.append(write._replace(box=_slice(share.box, write.shape)))
        arrays.append(part)
    files, placed = _placed(writes, options)
    final = [_cut_again(writes[number], arrays[number], each) for number, each in placed]
    own_values = _own_values(state)
    plan = SharePlan(
        member,
        state.graph,
        [write for write, _ in final],
        files,
        small,
        holdings.sharded,
        own_values,
        holdings.outline,
        holdings.checksums,
        holdings.replicas,
        structure=blake2b(
            [without_own(state.graph, own_values).serialize(), *(repr(line).encode() for line in holdings.outline)], 16
        ),
        values=blake2b((f"{key} {crc}\n".encode() for key, crc in holdings.checksums.items()), 16),
        left_out=state.left_out,
    )
    return plan, [array for _, array in final]


def is_small(spec: TensorSpec) -> bool:
    """Whether process 0 writes a sharded tensor as a whole."""
    return spec.nbytes <= _SMALL


def without_own(graph: ObjectGraph, own: Sequence[tuple[int, SavedValue]]) -> ObjectGraph:
    """An object graph without the values of which every process has its own."""
    left_out = set(own)
    nodes = [
        node._replace(values=tuple(value for value in node.values if (number, value) not in left_out))
        for number, node in enumerate(graph.nodes)
    ]
    return ObjectGraph(tuple(nodes))


def with_own(graph: ObjectGraph, others: Sequence[tuple[int, SavedValue]]) -> ObjectGraph:
    """An object graph with the values that other processes have of their own."""
    more: dict[int, list[SavedValue]] = {}
    for number, value in others:
        more.setdefault(number, []).append(value)
    nodes: list[Node] = list(graph.nodes)
    for number, values in more.items():
        nodes[number] = nodes[number]._replace(values=(*nodes[number].values, *values))
    return ObjectGraph(tuple(nodes))


def checksum(array: Array | PiecewiseArray, dtype: DType) -> int:
    """The checksum by which processes compare a value: of its elements as they are written."""
    if dtype.is_bytes:
        crc = 0
        for element in elements_of(np.asarray(array)):
            crc = crc32c(element, crc32c(len(element).to_bytes(8, "little"), crc))
        return crc
    crc = 0
    if isinstance(array, np.ndarray) and array.flags.c_contiguous:
        array = array.reshape(-1)
    for block in blocks(array, _BLOCK):
        crc = crc32c(bytes_of(np.ascontiguousarray(block, dtype.numpy)), crc)
    return crc


def _part(array: Any, piece_box: Box, box: Box) -> Any:
    """The part of a piece that a box of its tensor selects. The piece is at ``piece_box`` in the tensor."""
    return array if box == piece_box else array[tuple(slice(*side) for side in relative(box, piece_box))]


def _slice(box: Box, shape: tuple[int, ...]) -> TensorSlice | None:
    """A box as files have it; None for the whole tensor."""
    extents = tuple(
        WHOLE if (start, stop) == (0, limit) else (start, stop - start)
        for (start, stop), limit in zip(box, shape, strict=True)
    )
    return None if all(extent == WHOLE for extent in extents) else TensorSlice(extents)


def _placed(writes: Sequence[PlannedWrite], options: CheckpointOptions) -> tuple[int, list[tuple[int, PlannedWrite]]]:
    """Has the policy place what this process writes, as if each piece were a tensor."""
    if not writes:
        return 0, []
    wholes = [
        write if write.box is None else write._replace(shape=write.box.shape(write.shape), box=None) for write in writes
    ]
    policy = options.experimental_sharding_callback
    return (1, [*enumerate(wholes)]) if policy is None else policy.assign(wholes)


def _cut_again(write: PlannedWrite, array: Any, placed: PlannedWrite) -> tuple[PlannedWrite, Any]:
    if placed.box is None:
        return write._replace(shard=placed.shard), array
    parts = placed.box.resolve(placed.shape)
    starts = [part.start for part in (write.box.resolve(write.shape) if write.box is not None else ())] or [0] * len(
        parts
    )
    box = tuple((first + part.start, first + part.stop) for first, part in zip(starts, parts, strict=True))
    return write._replace(shard=placed.shard, box=_slice(box, write.shape)), array[parts]


def _own_values(state: LiveState) -> list[tuple[int, SavedValue]]:
    keys = {state.writes[number].key for number in state.own}
    nodes = {state.writes[number].node for number in state.own}
    listed: dict[tuple[int, SavedValue], None] = {}
    for node in sorted(nodes):
        for value in state.graph.nodes[node].values:
            if value.key in keys or any(key.startswith(value.key) for key in keys):
                listed[node, value] = None
    return list(listed)
