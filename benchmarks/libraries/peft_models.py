"""A small model with each kind of adapter of PEFT."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from benchmarks.libraries import torchvision_operators
from benchmarks.libraries.models import Model
from benchmarks.libraries.specimen import Specimen

torchvision_operators.define()
import peft
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

_SETTINGS: tuple[dict[str, Any], ...] = (
    {"target_modules": ["first", "last"]},
    {"target_modules": ["first", "last"], "feedforward_modules": ["first"]},
    {"target_modules": ["first", "last"], "total_step": 10},
    {"target_modules": ["norm"]},
    {"target_modules": ["first", "last"], "r": 4},
    {"target_modules": ["first", "last"], "n_frequency": 4},
)
"""What a kind may need; the first that it takes is used."""


def names() -> Iterable[str]:
    """The kinds of adapters."""
    return sorted(str(each.value) for each in PEFT_TYPE_TO_CONFIG_MAPPING)


def make(name: str, seed: int) -> Specimen:
    """A small model with an adapter of a kind."""
    return Model(seed, lambda: _adapted(name), lambda: {"hidden": torch.randn(2, 16)})


def _adapted(name: str) -> Any:
    kind = peft.PeftType(name)
    last: Exception | None = None
    for settings in _SETTINGS:
        try:
            return peft.get_peft_model(_Small(), PEFT_TYPE_TO_CONFIG_MAPPING[kind](**settings))
        except (TypeError, ValueError, AttributeError, KeyError) as error:  # of another kind
            last = error
    assert last is not None
    raise last


class _Small(torch.nn.Module):  # type: ignore[misc]  # PyTorch is not installed where types are checked
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.norm = torch.nn.LayerNorm(32)
        self.last = torch.nn.Linear(32, 16)
        self.config = {"model_type": "small"}

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.norm(self.first(hidden)))
        return found
