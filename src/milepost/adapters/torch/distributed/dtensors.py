"""`DTensor`: tensors of which every process holds a shard, as FSDP2 (`fully_shard`) and tensor parallelism make them.

Each process saves and restores the memory of its own shard. Nothing is gathered, and no collective operation is called: which boxes
of the tensor a process holds follows from mesh and placements. A file holds the whole tensor, under the same name as a plain tensor.
So it can be restored with any mesh and any placements, and into plain tensors.

A DTensor on the meta device gets memory on the device of its mesh, and keeps its identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from milepost.adapters.torch.distributed.local_shards import (
    held_of,
    home_of_shard,
    is_dtensor_type,
    layout_of,
    local_of,
    with_local,
)
from milepost.adapters.torch.distributed.placements import HeldBox, HeldPart
from milepost.adapters.torch.hints import HINTS
from milepost.adapters.torch.memory import changed, dtype_of, memory, version_of, write
from milepost.adapters.torch.on_gpu import elements
from milepost.adapters.torch.private import swap_tensors
from milepost.adapters.torch.refused import refusal_of
from milepost.adapters.torch.tensors import no_value
from milepost.graph.adapter import Adapter, Value, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.omissions import Omission
from milepost.tensor import Shard, ShardedArray, TensorSlice


class DTensorAdapter(Adapter):
    """`torch.distributed.tensor.DTensor`, also as a parameter."""

    leaf = True
    hints = HINTS

    def handles(self, kind: type) -> bool:
        return is_dtensor_type(kind)

    def may_refuse(self, obj: Any) -> bool:
        return False

    def is_value(self, obj: Any) -> bool:
        return not isinstance(obj, torch.nn.Parameter) and not obj.requires_grad

    def tracks(self, obj: Any) -> bool:
        return self.omission(obj) is None

    def omission(self, obj: Any) -> Omission | None:
        return refusal_of(obj)

    def version(self, obj: Any) -> Any:
        version = version_of(local_of(obj))
        return version and (obj._version, *version)

    def values(self, obj: Any) -> Sequence[Value]:
        held_part = held_of(obj)
        boxes = [_box(part) for part in held_part.parts]
        dtype, shape = dtype_of(obj.dtype), tuple(obj.shape)
        return [Value(VARIABLE_VALUE, dtype, shape, lambda: _sharded_array(obj, held_part), in_boxes=True, boxes=boxes)]

    def assign(self, obj: Any, arrays: Mapping[str, Any]) -> Any:
        array = next(array for name, array in arrays.items() if name not in self.hints)
        held_part = held_of(obj)
        if local_of(obj).is_meta:
            _make_memory(obj)
        local = local_of(obj)
        for part in held_part.parts:
            _read(local[part.local], array, _box(part))
        changed(local)
        changed(obj)
        return obj


def _box(part: HeldBox) -> TensorSlice:
    """The box that a part of a local shard is in the whole tensor."""
    return TensorSlice(tuple(zip(part.start, part.shape, strict=True)))


def _sharded_array(tensor: Any, held_part: HeldPart) -> ShardedArray:
    local = local_of(tensor)
    if local.is_meta:
        no_value(tensor)
    array = elements(local)
    shards = [
        Shard(tuple(part.start), array[part.local] if part.local else array, held_part.holders)
        for part in held_part.parts
    ]
    return ShardedArray(dtype_of(tensor.dtype).numpy, tuple(tensor.shape), shards, layout_of(tensor))


def _read(target: torch.Tensor, array: Any, box: TensorSlice) -> None:
    """Reads a box of a saved value into a part of a local shard."""
    if isinstance(array, np.ndarray):
        index = box.resolve(array.shape)
        write(target, array[index] if index else array)
        return
    destination = memory(target)
    if destination is None:
        write(target, array.read(box))
    else:
        array.read_into(box, destination)


def _make_memory(tensor: Any) -> None:
    """Gives memory to a DTensor on the meta device, which stays the same object."""
    new = with_local(tensor, torch.empty_like(local_of(tensor), device=home_of_shard(tensor), requires_grad=False))
    new.requires_grad_(tensor.requires_grad)
    swap_tensors(tensor, new)
    tensor._local_tensor = new._local_tensor


register(DTensorAdapter())
