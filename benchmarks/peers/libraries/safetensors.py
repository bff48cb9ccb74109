"""safetensors, with modules of PyTorch."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch

from benchmarks.peers.libraries.torch import InModule
from benchmarks.peers.peer import Live


class Safetensors(InModule):
    """`save_model` and `load_model`."""

    title = "safetensors"
    packages = ("safetensors", "torch")
    name = "model.safetensors"
    numbered = "model-{}.safetensors"

    def write(self, live: Live, path: Path) -> None:
        safetensors.torch.save_model(live, path)

    def read(self, live: Live, path: Path) -> None:
        safetensors.torch.load_model(live, path)

    def tell(self, live: Live, path: Path) -> str:
        return str(safetensors.torch.load_model(live, path, strict=False))

    def map(self, path: Path) -> object:
        return safetensors.torch.load_file(path)
