"""Recipes of optimizers and learning-rate schedulers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.zoo_torch.recipe import torch

optim: Any = torch.optim
schedules: Any = torch.optim.lr_scheduler


@dataclass(frozen=True)
class OptimizerRecipe:
    """A way to make an optimizer.

    Attributes:
        make: Makes one for parameters.
        variant: What distinguishes this recipe from others of the same class.
        model: What it trains: ``dense``, ``matrices`` or ``sparse``.
    """

    make: Callable[[Any], Any]
    variant: str = ""
    model: str = "dense"


def _optimizer(name: str, model: str = "dense", /, **settings: Any) -> OptimizerRecipe:
    kind = getattr(optim, name)
    variant = ", ".join(
        key if value is True else f"{key}={'a tensor' if isinstance(value, torch.Tensor) else value}"
        for key, value in settings.items()
        if key not in ("lr", "max_iter") or isinstance(value, torch.Tensor)
    )
    return OptimizerRecipe(lambda parameters: kind(parameters, **_copied(settings)), variant, model)


def _copied(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with tensors of their own, for optimizers keep and change those."""
    return {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in settings.items()}


def _of(name: str, *variants: dict[str, Any], model: str = "dense") -> list[OptimizerRecipe]:
    return [_optimizer(name, model, lr=0.1), *(_optimizer(name, model, **{"lr": 0.1, **each}) for each in variants)]


_TENSOR = {"lr": torch.tensor(0.1)}
_FUSED, _FOREACH = {"fused": True}, {"foreach": True}
OPTIMIZERS: dict[str, list[OptimizerRecipe]] = {
    "ASGD": _of("ASGD", {"t0": 2, **_FOREACH}),
    "Adadelta": _of("Adadelta", _FOREACH),
    "Adafactor": _of("Adafactor", _FOREACH),
    "Adagrad": _of("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.5}, _FUSED),
    "Adam": _of("Adam", {"amsgrad": True}, _FUSED, _FOREACH, _TENSOR),
    "AdamW": _of("AdamW", {"amsgrad": True, **_FUSED}, {"maximize": True, **_FOREACH}),
    "Adamax": _of("Adamax", _FOREACH),
    "LBFGS": [
        _optimizer("LBFGS", max_iter=3),
        _optimizer("LBFGS", max_iter=3, history_size=2, line_search_fn="strong_wolfe"),
    ],
    "Muon": _of("Muon", {"nesterov": False}, model="matrices"),
    "NAdam": _of("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}, _FOREACH),
    "RAdam": _of("RAdam", _FOREACH),
    "RMSprop": _of("RMSprop", {"momentum": 0.9, "centered": True}, _FOREACH),
    "Rprop": _of("Rprop", _FOREACH),
    "SGD": _of(
        "SGD",
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"momentum": 0.9, "dampening": 0.5, **_FOREACH},
        {"momentum": 0.9, **_FUSED},
        _TENSOR,
    ),
    "SparseAdam": _of("SparseAdam", model="sparse"),
}


@dataclass(frozen=True)
class SchedulerRecipe:
    """A way to make a scheduler.

    Attributes:
        make: Makes one for an optimizer of two groups.
        variant: What distinguishes this recipe from others of the same class.
        metric: Whether its step takes a metric.
    """

    make: Callable[[Any], Any]
    variant: str = ""
    metric: bool = False


class Halving:
    """A rule with state of its own, which schedulers save."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.calls = 0

    def __call__(self, step: int) -> float:
        self.calls += 1
        return float(self.factor ** (step / 4))


def _sequence(optimizer: Any) -> Any:
    parts = [schedules.LinearLR(optimizer, 0.1, total_iters=4), schedules.ExponentialLR(optimizer, 0.9)]
    return schedules.SequentialLR(optimizer, [*parts, schedules.CosineAnnealingLR(optimizer, 6)], [4, 9])


def _chain(optimizer: Any) -> Any:
    parts = [schedules.ConstantLR(optimizer, 0.1, total_iters=7), schedules.StepLR(optimizer, 3, 0.5)]
    return schedules.ChainedScheduler(parts, optimizer=optimizer)


def _scheduler(name: str, *arguments: Any, variant: str = "", **settings: Any) -> SchedulerRecipe:
    kind = getattr(schedules, name)
    return SchedulerRecipe(
        lambda optimizer: kind(optimizer, *arguments, **settings),
        variant,
        "metrics" in inspect.signature(kind.step).parameters,
    )


SCHEDULERS: dict[str, list[SchedulerRecipe]] = {
    "ChainedScheduler": [SchedulerRecipe(_chain)],
    "ConstantLR": [_scheduler("ConstantLR", 0.5, total_iters=7)],
    "CosineAnnealingLR": [_scheduler("CosineAnnealingLR", 8, eta_min=0.01)],
    "CosineAnnealingWarmRestarts": [_scheduler("CosineAnnealingWarmRestarts", 3, T_mult=2)],
    "CyclicLR": [
        _scheduler("CyclicLR", 0.01, 0.2, step_size_up=4),
        _scheduler("CyclicLR", 0.01, 0.2, step_size_up=3, mode="exp_range", gamma=0.9, variant="exp_range"),
        SchedulerRecipe(
            lambda optimizer: schedules.CyclicLR(optimizer, 0.01, 0.2, step_size_up=3, scale_fn=Halving(0.5)),
            "scale_fn, a callable object",
        ),
    ],
    "ExponentialLR": [_scheduler("ExponentialLR", 0.9)],
    "LambdaLR": [
        SchedulerRecipe(lambda optimizer: schedules.LambdaLR(optimizer, lambda step: 0.9**step)),
        SchedulerRecipe(
            lambda optimizer: schedules.LambdaLR(optimizer, [Halving(0.5), Halving(0.7)]), "callable objects"
        ),
    ],
    "LinearLR": [_scheduler("LinearLR", 0.1, total_iters=9)],
    "MultiStepLR": [_scheduler("MultiStepLR", [3, 7, 7, 11], gamma=0.5)],
    "MultiplicativeLR": [
        SchedulerRecipe(lambda optimizer: schedules.MultiplicativeLR(optimizer, lambda step: 0.9)),
        SchedulerRecipe(lambda optimizer: schedules.MultiplicativeLR(optimizer, Halving(0.9)), "a callable object"),
    ],
    "OneCycleLR": [
        _scheduler("OneCycleLR", [0.2, 0.4], total_steps=25),
        _scheduler(
            "OneCycleLR", 0.2, total_steps=25, three_phase=True, anneal_strategy="linear", variant="three_phase"
        ),
    ],
    "PolynomialLR": [_scheduler("PolynomialLR", total_iters=20, power=2.0)],
    "ReduceLROnPlateau": [
        _scheduler("ReduceLROnPlateau", patience=1, factor=0.5),
        _scheduler("ReduceLROnPlateau", mode="max", cooldown=2, patience=0, min_lr=[0.01, 0.02], variant="max, min_lr"),
    ],
    "SequentialLR": [SchedulerRecipe(_sequence)],
    "StepLR": [_scheduler("StepLR", 4, gamma=0.5)],
    "SWALR": [SchedulerRecipe(lambda optimizer: optim.swa_utils.SWALR(optimizer, swa_lr=0.01, anneal_epochs=9))],
}
