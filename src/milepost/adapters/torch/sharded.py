"""Modules and optimizers of which each process holds a part. They are refused, because one process writes a checkpoint.

They are recognised by the names of their classes, because the classes take long to import.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

from milepost.graph.omissions import Omission

_MODULE: Final = Omission(
    "each process holds a part of this module, and a checkpoint would hold the part of one",
    "gather the whole state with torch.distributed.checkpoint.state_dict.get_model_state_dict(), with "
    "StateDictOptions(full_state_dict=True), and save that",
)
_OPTIMIZER: Final = Omission(
    "each process holds a part of this optimizer's state, and a checkpoint would hold the part of one",
    "use the optimizer that it wraps, with DistributedDataParallel",
)
_CLASSES: Final = {
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel": _MODULE,
    "fairscale.nn.data_parallel.fully_sharded_data_parallel.FullyShardedDataParallel": _MODULE,
    "torch.distributed.optim.zero_redundancy_optimizer.ZeroRedundancyOptimizer": _OPTIMIZER,
    "fairscale.optim.oss.OSS": _OPTIMIZER,
}
_known: Final[weakref.WeakKeyDictionary[type, Omission | None]] = weakref.WeakKeyDictionary()


def sharded_omission(obj: Any) -> Omission | None:
    """Why a module or an optimizer is refused; None if it is not sharded."""
    return _known_omission(type(obj))


def _known_omission(kind: type) -> Omission | None:
    if kind not in _known:
        names = (f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__)
        _known[kind] = next((_CLASSES[name] for name in names if name in _CLASSES), None)
    return _known[kind]


def has_sharded(module: Any) -> bool:
    """Whether a module, or one in it, is sharded. Its ``state_dict`` is a collective operation then, and must not be called."""
    return any(_known_omission(type(each)) is not None for each in module.modules())
