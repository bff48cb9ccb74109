"""Every optimizer of the package ``torch_optimizer``."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch
import torch_optimizer as package

from benchmarks.libraries.specimen import Specimen
from benchmarks.libraries.training import Training


def names() -> Iterable[str]:
    """Optimizers by their classes' names."""
    found = [
        name for name, kind in vars(package).items() if inspect.isclass(kind) and kind is not torch.optim.Optimizer
    ]
    return sorted(found, key=str.lower)


def make(name: str, seed: int) -> Specimen:
    """A training with one of them."""
    return Training(seed, lambda net: _made(name, net))


def _made(name: str, net: Any) -> Any:
    kind = getattr(package, name)
    if name == "Lookahead":
        return kind(torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), k=4)
    if "lr" in inspect.signature(kind).parameters:
        return kind(net.parameters(), lr=0.01)
    return kind(net.parameters())
