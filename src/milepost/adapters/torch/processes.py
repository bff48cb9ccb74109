"""The processes of `torch.distributed`'s default group."""

from __future__ import annotations

from typing import Any

import torch

from milepost.adapters.processes import GROUPS, ProcessGroup
from milepost.adapters.torch.private import default_store


def torch_process_group() -> ProcessGroup | None:
    """The default group, if it is initialized and has more than one process."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() < 2:
        return None
    store: Any = default_store() if default_store is not None else None
    return ProcessGroup("torch.distributed", distributed.get_rank(), distributed.get_world_size(), store, store)


GROUPS["torch"] = torch_process_group
