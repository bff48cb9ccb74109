"""Finds the objects into which a framework has converted restored ones, such as the DTensors that `fully_shard` makes
of parameters.

A converted object is another object with the same values. A program may also have put another object in that place for another reason.
So an object counts as the converted one only if it holds the saved values. Each process compares the boxes that it holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from milepost.bundle import Boxes, BundleReader
from milepost.engine.restore_record import RestoreRecord
from milepost.graph.adapter import adapter_of, adapter_of_type, values_of
from milepost.graph.contract.operation import Operation
from milepost.graph.keys import unescape
from milepost.graph.saved.edges import by_live_names
from milepost.graph.saved.object_graph import SavedValue
from milepost.graph.traversal import live_children
from milepost.tensor import ShardedArray, TensorSlice


def follow_converted(operation: Operation, record: RestoreRecord) -> list[int]:
    """Binds converted objects instead of the objects that they were made of.

    Args:
        operation: The operation in which this is asked.
        record: The record of the restore, whose bindings change.

    Returns:
        The nodes for which there is another object now, with other values.

    Raises:
        StorageError: The files can no longer be read.
    """
    others = []
    bound = record.bound
    for number, node in record.graph.inner:
        obj = bound[number]
        adapter = adapter_of_type(type(obj)) if obj is not None else None
        if adapter is None or "converted" not in adapter.overrides:
            continue
        names = adapter.converted(obj)
        children: Mapping[str, Any] = dict(live_children(operation, adapter, obj)) if names else {}
        for name, child in by_live_names(adapter, obj, node.children, children) if names else ():
            present = children.get(name) if name in names else None
            if present is None or child not in bound or bound[child] is present:
                continue
            if _holds(present, record.graph.nodes[child].values, record.reader):
                bound[child] = present
            else:
                others.append(child)
    return others


def _holds(obj: Any, saved: Sequence[SavedValue], reader: BundleReader) -> bool:
    """Whether the parts of an object that this process holds are equal to the saved values."""
    adapter = adapter_of(obj)
    keys = {unescape(value.name): value.key for value in saved}
    values = () if adapter is None else values_of(adapter, obj)
    if not values or any(value.name not in keys for value in values):
        return False
    for value in values:
        spec = reader.spec(keys[value.name])
        if (spec.dtype, spec.shape) != (value.dtype, value.shape):
            return False
        array = value.read()
        if isinstance(array, ShardedArray):
            boxes = Boxes(reader, keys[value.name])
            parts = [(shard.array, boxes.read(_box(shard.start, shard.array.shape))) for shard in array.shards]
        else:
            parts = [(array, reader.read(keys[value.name]))]
        if any(not np.array_equal(_bits(here), _bits(there)) for here, there in parts):
            return False
    return True


def _box(start: Sequence[int], shape: Sequence[int]) -> TensorSlice:
    return TensorSlice(tuple(zip(start, shape, strict=True)))


def _bits(array: Any) -> Any:
    """The bytes of the elements, because NaN is not equal to NaN."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
