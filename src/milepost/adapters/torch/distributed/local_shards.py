"""The part of a DTensor that this process holds: its memory, and which boxes of the tensor it is.

DTensors are recognised without importing `torch.distributed.tensor`, which takes long.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

from milepost.adapters.torch.distributed.placements import HeldPart, MeshSplit, held, with_repetitions
from milepost.adapters.torch.private import root_mesh
from milepost.errors import UnsupportedError
from milepost.facts import Fact
from milepost.graph.omissions import Omission

ORDINARY: Final = frozenset({torch.Tensor, torch.nn.Parameter})
"""The classes of almost all tensors. What makes others different need not be looked for in these."""
_MOST_NAMED: Final = 8
_processes_of: Final[Fact[np.ndarray[Any, Any]]] = Fact()
"""What `_processes` has returned for a mesh. A mesh never changes, and PyTorch computes its array anew each time it is asked for."""


def is_dtensor_type(kind: type) -> bool:
    """Whether a class is `torch.distributed.tensor.DTensor`, or one derived from it."""
    module = _distributed()
    return module is not None and issubclass(kind, module.DTensor)


def is_dtensor(obj: Any) -> bool:
    """Whether an object is a DTensor."""
    kind = type(obj)
    return kind not in ORDINARY and is_dtensor_type(kind)


def local_of(tensor: Any) -> torch.Tensor:
    """The local shard of a DTensor, the very object."""
    local: torch.Tensor = tensor._local_tensor
    return local


def unfinished_sum(tensor: Any) -> Omission | None:
    """Why a DTensor cannot be saved if its processes hold parts of a sum; None for any other object."""
    placements = [each for each in tensor.placements if each.is_partial()]
    if not placements:
        return None
    return Omission(
        f"a DTensor with the placement {placements[0]}: its value is the sum of what the processes hold, or another reduction of it",
        "hold what tensor.redistribute(placements=[Replicate()]) returns, with one placement for each dimension of the mesh",
    )


def held_of(tensor: Any) -> HeldPart:
    """The part of a DTensor that this process holds.

    Raises:
        UnsupportedError: A placement is of a kind that is not known, or the local shard has a different shape than mesh and placements
            say.
    """
    splits = []
    for axis, placement in enumerate(tensor.placements):
        if hasattr(placement, "dim"):
            splits.append(MeshSplit(axis + 1, placement.dim, int(getattr(placement, "split_factor", 1))))
        elif not placement.is_replicate():
            raise UnsupportedError(
                "a DTensor has a placement that is not known",
                found=f"{placement!r} in {layout_of(tensor)}",
                remedy="redistribute the tensor to Shard and Replicate placements",
            )
    mesh = _processes(tensor)
    orders = {
        entry.tensor_dim: [axis + 1 for axis in entry.mesh_dims]
        for entry in getattr(tensor._spec, "shard_order", None) or ()
    }
    rank = torch.distributed.get_rank()
    held_part = held(tuple(tensor.shape), mesh, splits, rank, orders)
    local = tuple(local_of(tensor).shape)
    if held_part.holders and local != held_part.shape:
        raise UnsupportedError(
            "the local shard of a DTensor has a different shape than its mesh and placements say",
            expected=f"{held_part.shape} on process {rank}, of {tuple(tensor.shape)}, {layout_of(tensor)}",
            found=f"{local}",
            remedy="make the DTensor with distribute_tensor(), or give DTensor.from_local() shards as torch.chunk makes them",
        )
    return held_part


def layout_of(tensor: Any) -> str:
    """How a DTensor is spread, in words that are the same on all processes that hold it."""
    repeated = _processes(tensor)
    placements = ", ".join(map(str, tensor.placements))
    lengths = " x ".join(map(str, repeated.shape[1:]))
    text = f"({placements}) over a mesh of {lengths} processes: {_named(repeated[0].reshape(-1))}"
    return text if len(repeated) == 1 else f"{text}; and over {len(repeated) - 1} more like it"


def with_local(like: Any, local: torch.Tensor) -> Any:
    """A DTensor of the mesh and the placements of another one, and of its shape.

    Args:
        like: The other one.
        local: The local shard.
    """
    with torch.no_grad():
        return _distributed().DTensor.from_local(
            local, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )


def new_dtensor(like: Any, shape: Sequence[int], dtype: torch.dtype) -> Any:
    """A DTensor without values on the mesh of another one. It has the other's placements if it has the same shape; if not, it is whole
    on every process.
    """
    kind, device = _distributed().DTensor, home_of_shard(like)
    if tuple(shape) == tuple(like.shape):
        local = torch.empty_like(local_of(like), dtype=dtype, device=device, requires_grad=False)
        return with_local(like, local)
    local = torch.empty(tuple(shape), dtype=dtype, device=device)
    placements = [_distributed().Replicate() for _ in like.placements]
    return kind.from_local(local, like.device_mesh, placements, run_check=False)


def home_of_shard(tensor: Any) -> torch.device:
    """The device of the local shard of a DTensor after a restore: that of its mesh, if it is on the meta device."""
    local = local_of(tensor)
    return torch.empty(0, device=tensor.device_mesh.device_type).device if local.is_meta else local.device


def _distributed() -> Any:
    """`torch.distributed.tensor`, or None if it has not been imported. Then no DTensor exists."""
    return sys.modules.get("torch.distributed.tensor")


def _processes(tensor: Any) -> np.ndarray[Any, Any]:
    """The numbers of the processes that hold a DTensor. Along the first dimension are the parts of the mesh that hold equal tensors."""
    mesh = tensor.device_mesh
    processes = _processes_of.get(mesh)
    if processes is None:
        root = root_mesh(mesh)
        numbers = mesh.mesh.numpy()
        processes = numbers[np.newaxis] if root is mesh else with_repetitions(numbers, root.mesh.numpy())
        _processes_of[mesh] = processes
    return processes


def _named(ranks: np.ndarray[Any, Any]) -> str:
    if len(ranks) <= _MOST_NAMED:
        return ", ".join(map(str, ranks))
    steps = np.diff(ranks)
    if (steps == steps[0]).all():
        return f"{ranks[0]} to {ranks[-1]}" + (f" in steps of {steps[0]}" if steps[0] != 1 else "")
    return ", ".join(map(str, ranks))
