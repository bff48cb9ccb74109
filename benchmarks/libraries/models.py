"""Large models of PyTorch, trained for some steps where they can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.libraries.training import StateDict, start


class Model(StateDict):
    """A model with an optimizer.

    Where a loss cannot be had from it, random numbers are its gradients.

    Args:
        seed: What the model's first values depend on.
        make: Makes the model.
        inputs: The arguments that it can be called with, as functions that are tried in turn.
    """

    def __init__(self, seed: int, make: Callable[[], Any], *inputs: Callable[[], dict[str, Any]]) -> None:
        start(seed)
        self.model = make()
        with torch.no_grad():
            for buffer in self.model.buffers():
                if buffer.is_floating_point() and not buffer.is_meta:
                    buffer.mul_(1 + seed / 64)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001, momentum=0.9)
        self.parts = {"model": self.model, "optimizer": self.optimizer}
        self._inputs = list(inputs)

    def use(self, step: int) -> Any:
        self.model.train()
        found: Any = []
        while self._inputs:
            torch.manual_seed(100 + step)
            self.optimizer.zero_grad()
            try:
                found = _tensors(self.model(**self._inputs[0]()))
                torch.stack([each.float().square().mean() for each in found if each.requires_grad]).sum().backward()
                break
            except TimeoutError:
                raise
            except Exception:
                if step:
                    raise
                self._inputs.pop(0)
        if not self._inputs:
            generator = torch.Generator().manual_seed(100 + step)
            for parameter in self.model.parameters():
                if parameter.requires_grad and parameter.is_floating_point():
                    parameter.grad = torch.rand(parameter.shape, generator=generator).to(parameter.dtype)
        self.optimizer.step()
        return found


def _tensors(found: Any) -> list[Any]:
    if isinstance(found, torch.Tensor):
        return [found] if found.is_floating_point() else []
    if isinstance(found, dict):
        found = list(found.values())
    return [each for part in found for each in _tensors(part)] if isinstance(found, (list, tuple)) else []


def parameters(make: Callable[[], Any]) -> int:
    """How many numbers a model has, made without memory."""
    with torch.device("meta"):
        return sum(each.numel() for each in make().parameters())
