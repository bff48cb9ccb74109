"""Recipes of what `torch.nn.utils` and `torch.optim.swa_utils` make of modules: parametrized, pruned, averaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.zoo_torch.recipe import IMAGE, VECTOR, Recipe, of, torch

nn: Any = torch.nn
parametrizations: Any = torch.nn.utils.parametrizations


def _linear() -> Any:
    return nn.Linear(6, 6)


def _changed(change: Callable[..., Any], *arguments: Any, variant: str = "", **settings: Any) -> Recipe:
    def make() -> Any:
        module = _linear()
        changed = change(module, *arguments, **settings)
        return changed if isinstance(changed, nn.Module) else module

    return of(make, VECTOR, variant=variant)


class Symmetric(nn.Module):
    """A user's own parametrization, with a parameter."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(()))

    def forward(self, x):
        return x.triu() + x.triu(1).mT + self.shift


PARAMETRIZED = {
    "parametrizations.weight_norm": [
        _changed(parametrizations.weight_norm),
        of(lambda: parametrizations.weight_norm(nn.Conv2d(4, 6, 3), dim=1), IMAGE, variant="of a convolution"),
    ],
    "parametrizations.spectral_norm": [_changed(parametrizations.spectral_norm)],
    "parametrizations.orthogonal": [
        _changed(parametrizations.orthogonal, orthogonal_map=name, variant=name)
        for name in ("matrix_exp", "cayley", "householder")
    ],
    "parametrize.register_parametrization": [
        of(lambda: _registered(_linear(), Symmetric()), VECTOR, variant="a user's own"),
        of(lambda: _registered(_linear(), Symmetric(), Symmetric()), VECTOR, variant="two of them"),
    ],
    "weight_norm": [_changed(nn.utils.weight_norm)],
    "spectral_norm": [_changed(nn.utils.spectral_norm)],
}


def _registered(module: Any, *others: Any) -> Any:
    for other in others:
        torch.nn.utils.parametrize.register_parametrization(module, "weight", other)
    return module


def _pruned() -> dict[str, list[Recipe]]:
    import torch.nn.utils.prune as prune

    def mask(module: Any) -> Any:
        return torch.arange(36).reshape(6, 6) % 3 == 0

    def twice(module: Any) -> None:
        prune.random_unstructured(module, "weight", 0.25)
        prune.random_structured(module, "weight", 1, dim=0)

    return {
        "prune.Identity": [_changed(prune.identity, "weight")],
        "prune.RandomUnstructured": [_changed(prune.random_unstructured, "weight", 0.5)],
        "prune.L1Unstructured": [_changed(prune.l1_unstructured, "weight", 0.5)],
        "prune.RandomStructured": [_changed(prune.random_structured, "weight", 2, dim=1)],
        "prune.LnStructured": [_changed(prune.ln_structured, "weight", 2, n=2, dim=1)],
        "prune.CustomFromMask": [_changed(lambda module: prune.custom_from_mask(module, "weight", mask(module)))],
        "prune.PruningContainer": [_changed(twice)],
    }


def _averaged(**settings: Any) -> Recipe:
    def make() -> Any:
        return torch.optim.swa_utils.AveragedModel(nn.Sequential(_linear(), nn.BatchNorm1d(6)), **settings)

    def call(module: Any, x: Any) -> Any:
        module.update_parameters(nn.Sequential(_linear(), nn.BatchNorm1d(6)))
        return module(x)

    return of(make, VECTOR, variant=", ".join(settings), call=call)


RECIPES = {**PARAMETRIZED, **_pruned()}
AVERAGED = {
    "AveragedModel": [
        _averaged(),
        _averaged(multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True),
    ]
}
