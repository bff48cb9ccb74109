"""Which tensors, modules and optimizers cannot be saved, with the reason and a remedy.

A module or an optimizer is refused if each process holds a part of it and the part is not a DTensor. Such classes are recognised by
their names, because importing them takes long.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from milepost.adapters.torch.distributed.local_shards import ORDINARY, is_dtensor, local_of, unfinished_sum
from milepost.adapters.torch.private import UninitializedTensorMixin, is_traceable_wrapper_subclass
from milepost.facts import Fact
from milepost.graph.omissions import Omission

_MODULE: Final = Omission(
    "each process holds a part of this module, and a checkpoint would hold the part of only one",
    "use torch.distributed.fsdp.fully_shard() instead; or gather the whole state with "
    "torch.distributed.checkpoint.state_dict.get_model_state_dict(), with StateDictOptions(full_state_dict=True), and save that",
)
_OPTIMIZER: Final = Omission(
    "each process holds a part of this optimizer's state, and a checkpoint would hold the part of only one",
    "use the optimizer that it wraps, with DistributedDataParallel",
)
_CLASSES: Final = {
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel": _MODULE,
    "fairscale.nn.data_parallel.fully_sharded_data_parallel.FullyShardedDataParallel": _MODULE,
    "torch.distributed.optim.zero_redundancy_optimizer.ZeroRedundancyOptimizer": _OPTIMIZER,
    "fairscale.optim.oss.OSS": _OPTIMIZER,
}
_known: Final[Fact[tuple[Omission | None]]] = Fact()
"""Of a class: why its objects are refused."""


def refusal_of(tensor: Any, *, in_parts: bool = False) -> Omission | None:
    """Why a tensor cannot be saved; None if it can.

    Args:
        tensor: The tensor.
        in_parts: Whether it may be saved in parts, as plain state saves quantized and sparse tensors.
    """
    kind = type(tensor)
    if kind in ORDINARY and tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized):
        return None
    if isinstance(tensor, UninitializedTensorMixin):
        return Omission("a lazy parameter that has no shape yet", "call the module once before it is saved")
    if is_dtensor(tensor):
        if in_parts:
            return Omission("a DTensor, whose parts other processes hold", "save what its full_tensor() returns")
        return unfinished_sum(tensor) or _refusal_of_shard(local_of(tensor))
    if tensor.is_nested:
        return Omission("a nested tensor", "hold the tensors that its unbind() returns")
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ and not is_traceable_wrapper_subclass(tensor):
        return Omission(
            f"a {kind.__name__}, a tensor class without __tensor_flatten__()",
            "hold the tensors that it consists of instead",
        )
    if in_parts:
        return None
    if tensor.is_quantized:
        return Omission("a quantized tensor", "hold its int_repr(), scales and zero points as tensors of their own")
    if tensor.layout is not torch.strided:
        return Omission(f"a tensor of layout {tensor.layout}", "hold its indices and values as tensors of their own")
    return None


def sharded_omission(obj: Any) -> Omission | None:
    """Why a module or an optimizer is refused; None if it is not sharded."""
    kind = type(obj)
    known = _known.get(kind)
    if known is None:
        names = (f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__)
        known = _known[kind] = (next((_CLASSES[name] for name in names if name in _CLASSES), None),)
    return known[0]


def has_sharded(module: Any) -> bool:
    """Whether a module, or one in it, is sharded. Its ``state_dict`` is a collective operation then, and must not be called."""
    return any(sharded_omission(each) is not None for each in module.modules())


def _refusal_of_shard(local: torch.Tensor) -> Omission | None:
    refusal = refusal_of(local)
    if refusal is None and is_traceable_wrapper_subclass(local):
        refusal = Omission(f"a {type(local).__name__}", "hold its parts as DTensors of their own")
    return None if refusal is None else Omission(f"a DTensor whose local shard is {refusal.reason}", refusal.remedy)
