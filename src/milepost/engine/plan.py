"""The plan of a save: plain frozen data that can be printed, tested and merged.

A plan names tensors, nodes, shards and boxes. The arrays are passed separately, in the same order. The counterpart of a
plan in a restore is `milepost.engine.match.Match`, which holds the live objects.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from milepost.graph.object_graph import ObjectGraph
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


new_write: Final = partial(tuple.__new__, PlannedWrite)
"""It makes a `PlannedWrite` of a tuple with all attributes, in half of the time; see `milepost.graph.object_graph.new_node`."""


@dataclass(frozen=True, slots=True)
class SavePlan:
    """Everything one save writes.

    Attributes:
        graph: The object graph.
        writes: The tensors, in the order in which their bytes are laid out.
        shards: The number of data files.
    """

    graph: ObjectGraph
    writes: tuple[PlannedWrite, ...]
    shards: int = 1

    def __str__(self) -> str:
        return "\n".join([f"{len(self.graph.nodes)} nodes, {self.shards} shards", *map(str, self.writes)])
