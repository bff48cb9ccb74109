"""The plan of a save: plain frozen data that can be printed, tested and merged.

A plan names tensors, nodes, shards and boxes. The arrays are passed separately, in the same order. The counterpart of a
plan in a restore is `milepost.restoring.match.Match`, which holds the live objects.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

from milepost.engine.left_out import NOTHING, LeftOut
from milepost.graph.saved.object_graph import ObjectGraph
from milepost.tensor import DType, TensorSlice, TensorSpec


class PlannedWrite(NamedTuple):
    """One tensor, or a box of one, and the data file that it goes to; see `ShardingPolicy`.

    Attributes:
        key: The tensor's key.
        node: The number of its object in the object graph.
        dtype: Element type.
        shape: The shape of the whole tensor.
        shard: The number of the data file, from 0 on.
        box: The box, or None for the whole tensor.

    Example:
        >>> PlannedWrite("w/.ATTRIBUTES/VARIABLE_VALUE", 1, DType.of("float32"), (2, 3)).nbytes
        24
    """

    key: str
    node: int
    dtype: DType
    shape: tuple[int, ...]
    shard: int = 0
    box: TensorSlice | None = None

    @property
    def nbytes(self) -> int:
        """The size of the piece in bytes; 0 for strings, whose size does not follow from the shape."""
        shape = self.shape if self.box is None else self.box.shape(self.shape)
        return math.prod(shape) * self.dtype.itemsize

    def __str__(self) -> str:
        box = f" box {self.box}" if self.box is not None else ""
        return f"{self.key} {TensorSpec(self.dtype, self.shape)}{box} -> shard {self.shard}"


@dataclass(frozen=True, slots=True)
class Wholes(Sequence[PlannedWrite]):
    """Whole tensors that are not placed in data files yet. Each becomes a `PlannedWrite` when it is asked for, because there may
    be millions, and columns take half of the memory.

    Attributes:
        keys: The key of each.
        nodes: The number of its object in the object graph.
        dtypes: Its element type.
        shapes: Its shape.

    Example:
        >>> wholes = Wholes(["w/.ATTRIBUTES/VARIABLE_VALUE"], [1], [DType.of("float32")], [(2, 3)])
        >>> wholes[0].nbytes, list(wholes) == wholes[:]
        (24, True)
    """

    keys: Sequence[str]
    nodes: Sequence[int]
    dtypes: Sequence[DType]
    shapes: Sequence[tuple[int, ...]]

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[PlannedWrite]:
        return map(PlannedWrite, self.keys, self.nodes, self.dtypes, self.shapes)

    @overload
    def __getitem__(self, index: int) -> PlannedWrite: ...
    @overload
    def __getitem__(self, index: slice) -> list[PlannedWrite]: ...
    def __getitem__(self, index: int | slice) -> PlannedWrite | list[PlannedWrite]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return PlannedWrite(self.keys[index], self.nodes[index], self.dtypes[index], self.shapes[index])


@dataclass(frozen=True, slots=True)
class SavePlan:
    """Everything one save writes.

    Attributes:
        graph: The object graph.
        writes: The tensors, in the order in which their bytes are laid out.
        shards: The number of data files.
        left_out: What the save leaves out on purpose.
    """

    graph: ObjectGraph
    writes: Sequence[PlannedWrite]
    shards: int = 1
    left_out: LeftOut = NOTHING

    def __str__(self) -> str:
        return "\n".join([f"{len(self.graph.nodes)} nodes, {self.shards} shards", *map(str, self.writes)])
