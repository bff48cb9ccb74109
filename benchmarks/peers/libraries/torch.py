"""`torch.save` and `torch.load` of a state dict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers.peer import Late, Live, Peer, Values


class _Late(torch.nn.Module):  # type: ignore[misc]
    """A module that makes its parameter when it is first called."""

    def forward(self, x: Any) -> Any:
        if not hasattr(self, "weight"):
            self.weight = torch.nn.Parameter(torch.randn(x.shape[-1], 8))
        return x @ self.weight


def unbuilt() -> dict[str, Late]:
    """Modules whose parameters come late."""

    def call(module: Any) -> None:
        module(torch.ones(2, 4))

    return {
        "PyTorch's lazy layers": Late(lambda: torch.nn.Sequential(torch.nn.LazyLinear(8), torch.nn.Linear(8, 1)), call),
        "a parameter that forward makes": Late(lambda: torch.nn.Sequential(_Late(), torch.nn.Linear(8, 1)), call),
    }


class InModule(Peer):
    """Values that are the parameters of a module of PyTorch."""

    def hold(self, values: Values) -> Live:
        module = torch.nn.Module()
        for name, value in values.items():
            tensor = torch.from_numpy(value.copy())
            module.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
        return module

    def values(self, live: Live) -> Values:
        return {name: tensor.numpy().copy() for name, tensor in live.state_dict().items()}

    def unbuilt(self) -> Mapping[str, Late]:
        return unbuilt()


class TorchSave(InModule):
    """A state dict in a file."""

    title = "torch.save"
    packages = ("torch",)
    name = "model.pt"
    numbered = "model-{}.pt"

    def write(self, live: Live, path: Path) -> None:
        torch.save(live.state_dict(), path)

    def read(self, live: Live, path: Path) -> None:
        live.load_state_dict(torch.load(path))

    def tell(self, live: Live, path: Path) -> str:
        return str(live.load_state_dict(torch.load(path), strict=False))

    def map(self, path: Path) -> object:
        return torch.load(path, mmap=True)

    def exploits(self, path: Path, code: str) -> list[tuple[str, Callable[[], object]]]:
        def trusting() -> None:
            from benchmarks.peers.exploit import Runs

            torch.save(Runs(code), path)
            torch.load(path, weights_only=False)

        return [("trusting: weights_only=False", trusting)]
