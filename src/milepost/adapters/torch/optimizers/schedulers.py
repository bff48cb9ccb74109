"""Learning-rate schedulers of PyTorch: their ``state_dict``, and the learning rates of their optimizer.

A new scheduler changes the optimizer's learning rates. If the optimizer was restored before the scheduler was made, it gets the
restored rates back when the scheduler is restored.
"""

from __future__ import annotations

from typing import Any

import torch

from milepost.adapters.iterators.any_library import StatefulAdapter
from milepost.adapters.torch.optimizers.param_groups import recall
from milepost.graph.adapter import register


class SchedulerAdapter(StatefulAdapter):
    """`torch.optim.lr_scheduler.LRScheduler` and classes derived from it."""

    each_process = ""

    def handles(self, kind: type) -> bool:
        return issubclass(kind, torch.optim.lr_scheduler.LRScheduler)

    def on_restored(self, obj: Any) -> None:
        super().on_restored(obj)
        optimizer = getattr(obj, "optimizer", None)
        if isinstance(optimizer, torch.optim.Optimizer):
            recall(optimizer)


register(SchedulerAdapter())
