"""Large models of PyTorch, trained for some steps where they can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch

from benchmarks.libraries.training import StateDict, start


class Model(StateDict):
    """A model with an optimizer.

    Where a loss cannot be had from it, random numbers are its gradients.

    Attributes:
        used: Whether models are used at all, which takes most of the time.

    Args:
        seed: What the model's first values depend on.
        make: Makes the model.
        inputs: The arguments that it can be called with, as functions that are tried in turn.
    """

    used: ClassVar = True

    def __init__(self, seed: int, make: Callable[[], Any], *inputs: Callable[[], dict[str, Any]]) -> None:
        start(seed)
        self.model = make()
        kept = self.model.state_dict()
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                if name in kept and buffer.is_floating_point():
                    buffer.mul_(1 + seed / 64)  # else it has its first value in both programs
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001, momentum=0.9)
        self.parts = {"model": self.model, "optimizer": self.optimizer}
        self._inputs = self._fitting(inputs) if self.used else None

    def use(self, step: int) -> Any:
        self.model.train()
        self.optimizer.zero_grad()
        torch.manual_seed(100 + step)
        found: Any = []
        if self._inputs is not None:
            found = self._learn(self._inputs)
        else:
            for parameter in self.model.parameters():
                if parameter.requires_grad and parameter.is_floating_point():
                    parameter.grad = torch.rand(parameter.shape).to(parameter.dtype)
        self.optimizer.step()
        return found

    def _learn(self, inputs: Callable[[], dict[str, Any]]) -> list[Any]:
        found = _tensors(self.model(**inputs()))
        torch.stack([each.float().square().mean() for each in found if each.requires_grad]).sum().backward()
        return found

    def _fitting(self, inputs: Sequence[Callable[[], dict[str, Any]]]) -> Callable[[], dict[str, Any]] | None:
        """The first arguments that it takes; trying them leaves it as it was."""
        for each in inputs:
            buffers = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
            try:
                self._learn(each)
                return each
            except TimeoutError:
                raise
            except Exception:  # these arguments are not for it
                continue
            finally:
                self.optimizer.zero_grad()
                with torch.no_grad():
                    for buffer, before in buffers:
                        buffer.copy_(before)
        return None


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
