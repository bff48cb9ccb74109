"""Every optimizer and scheduler of timm, and its averages of models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from benchmarks.libraries import torchvision_operators
from benchmarks.libraries.specimen import Specimen
from benchmarks.libraries.training import Training

torchvision_operators.define()
import timm.optim
import timm.scheduler
import timm.utils

_SCHEDULERS: dict[str, dict[str, Any]] = {
    "CosineLRScheduler": {"t_initial": 10, "warmup_t": 2},
    "MultiStepLRScheduler": {"decay_t": [2, 4], "decay_rate": 0.5},
    "PlateauLRScheduler": {"patience_t": 0, "decay_rate": 0.5},
    "PolyLRScheduler": {"t_initial": 10, "warmup_t": 2},
    "StepLRScheduler": {"decay_t": 2, "decay_rate": 0.5, "noise_range_t": 3},
    "TanhLRScheduler": {"t_initial": 10, "warmup_t": 2},
    "WSDLRScheduler": {"t_initial": 10, "warmup_t": 2, "decay_t": 4},
}
_AVERAGES = ("ModelEma", "ModelEmaV2", "ModelEmaV3")


def names() -> Iterable[str]:
    """Optimizers by the names that timm gives them, and classes of schedulers and averages."""
    return [*timm.optim.list_optimizers(), "lookahead_sgd", "lookahead_adamw", *_SCHEDULERS, *_AVERAGES]


def make(name: str, seed: int) -> Specimen:
    """A training with one of them."""
    if name in _SCHEDULERS:
        return Training(seed, _sgd, lambda optimizer: {"schedule": _scheduler(name, optimizer)})
    if name in _AVERAGES:
        return Averaged(seed, name)
    return Training(seed, lambda net: timm.optim.create_optimizer_v2(net, opt=name, lr=0.01))


class Averaged(Training):
    """A training with an average of the model, which is updated after each step."""

    def __init__(self, seed: int, name: str) -> None:
        super().__init__(seed, _sgd)
        self.average = getattr(timm.utils, name)(self.net, decay=0.5)
        self.parts["average"] = self.average if isinstance(self.average, torch.nn.Module) else self.average.ema

    def use(self, step: int) -> Any:
        found = super().use(step)
        self.average.update(self.net)
        return found


def _sgd(net: Any) -> Any:
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)


def _scheduler(name: str, optimizer: Any) -> Any:
    kind: Callable[..., Any] = getattr(timm.scheduler, name, None) or getattr(timm.scheduler.plateau_lr, name)
    return kind(optimizer, **_SCHEDULERS[name])
