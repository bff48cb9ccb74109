"""How to make one object of a class of PyTorch and use it, so that it can be saved and restored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")


def grid(*shape: int, dtype: Any = None) -> Any:
    """Numbers between -1 and 1 that look random, and are the same everywhere."""
    count = torch.Size(shape).numel()
    numbers = torch.sin(torch.arange(1, count + 1, dtype=torch.float64) * 12.9898).reshape(shape)
    return numbers.to(dtype or torch.float32)


VECTOR = grid(4, 6)
LINE = grid(2, 4, 8)
IMAGE = grid(2, 4, 8, 8)
VOLUME = grid(2, 4, 4, 4, 4)
SEQUENCE = grid(5, 2, 4)
TOKENS = torch.tensor([[1, 2, 3, 0, 5], [5, 4, 3, 2, 1]])
CLASSES = torch.tensor([1, 0, 2, 1])


def _call(module: Any, *inputs: Any) -> Any:
    return module(*inputs)


@dataclass(frozen=True)
class Recipe:
    """A way to make and use a module.

    Attributes:
        make: Makes a fresh one.
        inputs: What it is called with.
        variant: What distinguishes this recipe from others of the same class.
        call: How it is used; None if it cannot be.
        trains: Whether it can be used in training mode here.
        lazy: Whether it makes its parameters in the first call.
    """

    make: Callable[[], Any]
    inputs: tuple[Any, ...] = ()
    variant: str = ""
    call: Callable[..., Any] | None = _call
    trains: bool = True
    lazy: bool = False


def of(make: Callable[[], Any], *inputs: Any, **options: Any) -> Recipe:
    """A recipe."""
    return Recipe(make, inputs, **options)
