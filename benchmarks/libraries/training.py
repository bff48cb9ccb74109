"""A small training with PyTorch, for optimizers and models that others wrote."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.libraries.specimen import Parts

nn: Any = torch.nn
_INPUTS = torch.sin(torch.arange(1, 49, dtype=torch.float32) * 12.9898).reshape(8, 6)


def start(seed: int) -> None:
    """Seeds PyTorch, and computes in one thread, so that sums are always in the same order."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)


def network() -> Any:
    """The model that optimizers train."""
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))


class StateDict(Parts):
    """Objects with a ``state_dict``, saved together by ``torch.save``."""

    def account(self) -> Any:
        return {name: part.state_dict() for name, part in self.parts.items()}

    def save(self, path: Path) -> None:
        torch.save(self.account(), path)

    def load(self, path: Path) -> None:
        saved = torch.load(path, weights_only=False)
        for name, part in self.parts.items():
            part.load_state_dict(saved[name])


class Training(StateDict):
    """An optimizer, the model that it trains, and further objects such as a scheduler.

    Args:
        seed: What the model's first values depend on.
        make: Makes the optimizer, for the model.
        further: Makes further objects, for the optimizer; each ``step`` is called after the optimizer's, with the number of
            the step where it takes one.
    """

    def __init__(
        self, seed: int, make: Callable[[Any], Any], further: Callable[[Any], dict[str, Any]] = lambda optimizer: {}
    ) -> None:
        start(seed)
        self.net = network()
        self.optimizer = make(self.net)
        self.further = further(self.optimizer)
        self.parts = {"net": self.net, "optimizer": self.optimizer, **self.further}

    def use(self, step: int) -> Any:
        torch.manual_seed(100 + step)
        if hasattr(self.optimizer, "train"):
            self.optimizer.train()
        losses: list[Any] = []

        def loss() -> Any:
            self.optimizer.zero_grad()
            found = (self.net(_INPUTS * (1 + step / 8)) - step / 8).square().mean()
            losses.append(found.detach())
            return found

        def closure() -> Any:
            with torch.enable_grad():
                found = loss()
                found.backward(create_graph=self.second_order)
            return found

        self._step(loss, closure)
        for part in self.further.values():
            takes = inspect.signature(part.step).parameters
            part.step(*([step] if "epoch" in takes else []), *([losses[0]] if "metric" in takes else []))
        for parameter in self.net.parameters():
            parameter.grad = None  # else a graph of higher derivatives would keep itself alive
        rates = [group.get("lr") for group in getattr(self.optimizer, "param_groups", [])]
        return {"loss": losses, "rates": rates}

    def _step(self, loss: Callable[[], Any], closure: Callable[[], Any]) -> None:
        fused = getattr(self.optimizer, "fused_backward", None)
        if fused is not None:
            fused(loss(), lr=0.01)
        elif self._needs_closure():
            if type(self.optimizer).__name__ != "LBFGS":
                closure()
            self.optimizer.step(closure)
        else:
            found = closure()
            try:
                self.optimizer.step()
            except (TypeError, RuntimeError, ValueError) as error:
                if "closure" not in str(error) and "loss" not in str(error):
                    raise
                self.optimizer.step(lambda: found)

    def _needs_closure(self) -> bool:
        step = inspect.signature(self.optimizer.step).parameters
        asked = "closure" in step and step["closure"].default is inspect.Parameter.empty
        return asked or type(self.optimizer).__name__ in (
            "LBFGS",
            "SAM",
            "GSAM",
            "WSAM",
            "LookSAM",
            "FriendlySAM",
            "BSAM",
            "AliG",
        )

    @property
    def second_order(self) -> bool:
        """Whether gradients must have gradients."""
        return any(word in type(self.optimizer).__name__.lower() for word in ("hessian", "sophia"))
