"""State that modules of data-parallel training hold only temporarily: gathered parameters, and buffers that will be replaced.

- `fully_shard` replaces the parameters of a module by gathered copies, from its forward pass to its backward pass. The optimizer
  does not know these copies. They may have another element type, and they are thrown away. So a save or a restore puts the shards
  back first, as ``state_dict()`` does. The backward pass gathers them again.
- `DistributedDataParallel` with ``broadcast_buffers=True``, which is the default, gives all processes the buffers of the first one at
  the beginning of each call. Between two calls those of the others may differ, as the running means of batch normalization do, and are
  of no use. So those of process 0 are saved.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import torch

from milepost.adapters.torch.distributed.local_shards import is_dtensor
from milepost.adapters.torch.private import has_gathered_parameters
from milepost.errors import UntrackableError

_DDP: Final = "torch.nn.parallel.distributed.DistributedDataParallel"


def put_shards_back(module: Any) -> None:
    """Puts the shards of a module back, if `fully_shard` has gathered its parameters. No other process takes part.

    Raises:
        UntrackableError: The gathered parameters are in use.
    """
    if not has_gathered_parameters(module):
        return
    module.reshard()
    if has_gathered_parameters(module):
        raise UntrackableError(
            "the forward pass of this module is running with gathered parameters, which are not the shards that the "
            "optimizer updates; nothing was changed",
            expected="a module of fully_shard() that can hold its shards",
            found=f"{type(module).__name__} with gathered parameters",
            remedy="save and restore after the forward pass",
        )


def broadcast_buffers(module: Any) -> Collection[Any]:
    """The buffers of a `DistributedDataParallel` that its next call replaces by those of process 0."""
    if not any(f"{base.__module__}.{base.__qualname__}" == _DDP for base in type(module).__mro__):
        return ()
    if not module.broadcast_buffers or module.process_group.size() != torch.distributed.get_world_size():
        return ()
    return [buffer for buffer in module.modules_buffers if not is_dtensor(buffer)]
