"""Every public class of a namespace of PyTorch, found by looking, and its recipes."""

from __future__ import annotations

import inspect
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.zoo_torch import modules, modules_changed, modules_stateless, optimizers
from tests.zoo_torch.checks_modules import STAGES, check
from tests.zoo_torch.checks_training import OPTIMIZER_STAGES, SCHEDULER_STAGES, check_optimizer, check_scheduler
from tests.zoo_torch.recipe import torch

BASES: Final = {
    "optim.Optimizer": "the class that all optimizers are derived from",
    "optim.lr_scheduler.LRScheduler": "the class that all schedulers are derived from",
}


def _joined(*tables: dict[str, list[Any]]) -> dict[str, list[Any]]:
    joined: dict[str, list[Any]] = {}
    for table in tables:
        for name, recipes in table.items():
            joined.setdefault(name, []).extend(recipes)
    return joined


RECIPES: Final[dict[str, dict[str, list[Any]]]] = {
    "nn": _joined(modules.RECIPES, modules_stateless.RECIPES, modules.WEIGHTED),
    "nn.utils": modules_changed.RECIPES,
    "optim.swa_utils": modules_changed.AVERAGED,
    "optim": optimizers.OPTIMIZERS,
    "optim.lr_scheduler": optimizers.SCHEDULERS,
}
CHECKS: Final[dict[str, Callable[[Any, Path], dict[str, Any]]]] = {
    "optim": check_optimizer,
    "optim.lr_scheduler": check_scheduler,
}
"""How members of a namespace are checked; others are modules."""


class Case(NamedTuple):
    """One recipe of one class."""

    namespace: str
    name: str
    recipe: Any

    def __str__(self) -> str:
        variant = f" ({self.recipe.variant})" if self.recipe.variant else ""
        return f"{self.namespace}.{self.name}{variant}"

    @property
    def stages(self) -> tuple[str, ...]:
        """What is tried."""
        return stages(self.namespace)


def stages(namespace: str) -> tuple[str, ...]:
    """What is tried with the members of a namespace."""
    return {"optim": OPTIMIZER_STAGES, "optim.lr_scheduler": SCHEDULER_STAGES}.get(namespace, STAGES)


def _public(module: Any, base: type, prefix: str = "") -> list[str]:
    return [
        prefix + name
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, base) and not name.startswith("_") and kind is not base
    ]


def classes(namespace: str) -> list[str]:
    """What there is in a namespace that can have state."""
    import torch.nn.utils.prune as prune

    schedules = torch.optim.lr_scheduler
    found = {
        "nn": ["Module", *_public(torch.nn, torch.nn.Module)],
        "nn.utils": [
            *(f"parametrizations.{name}" for name in torch.nn.utils.parametrizations.__all__),
            "parametrize.register_parametrization",
            *(name for name in ("weight_norm", "spectral_norm") if hasattr(torch.nn.utils, name)),
            *_public(prune, prune.BasePruningMethod, "prune."),
        ],
        "optim.swa_utils": _public(torch.optim.swa_utils, torch.nn.Module),
        "optim": _public(torch.optim, torch.optim.Optimizer),
        "optim.lr_scheduler": [
            *_public(schedules, schedules.LRScheduler),
            *_public(torch.optim.swa_utils, schedules.LRScheduler),
        ],
    }[namespace]
    return sorted({*found} - {name.removeprefix(f"{namespace}.") for name in BASES}, key=str.lower)


def cases() -> Iterator[Case]:
    """Every recipe of every class that this PyTorch has."""
    for namespace, recipes in RECIPES.items():
        for name in classes(namespace):
            for recipe in recipes.get(name, ()):
                yield Case(namespace, name, recipe)


def without_recipe() -> list[str]:
    """Classes that nobody has written a recipe for."""
    return [
        f"torch.{namespace}.{name}"
        for namespace, recipes in RECIPES.items()
        for name in classes(namespace)
        if name not in recipes
    ]


def run_all() -> dict[str, dict[str, Any]]:
    """The results of all cases, by their names."""
    results, threads = {}, torch.get_num_threads()
    torch.set_num_threads(1)  # so little is computed that they would only wait for each other
    with tempfile.TemporaryDirectory() as directory, torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # many classes of PyTorch are deprecated, and say so
        for number, case in enumerate(cases()):
            try:
                found = CHECKS.get(case.namespace, check)(case.recipe, Path(directory, str(number)))
            except Exception as error:
                found = dict.fromkeys(case.stages, f"{type(error).__name__}: {error}")
            results[str(case)] = found
    torch.set_num_threads(threads)
    return results
