"""The models of torchvision that are not too large."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

from benchmarks.libraries import torchvision_operators
from benchmarks.libraries.models import Model, parameters
from benchmarks.libraries.specimen import Specimen

torchvision_operators.define()
import torchvision.models as package

_MOST = 36_000_000
_LARGE = ("alexnet", "vgg11_bn", "resnet50", "wide_resnet50_2", "resnext50_32x4d", "vit_b_32")
"""Of families that have no small model."""


def names() -> Iterable[str]:
    """Models by the names that torchvision gives them."""
    found = []
    for name in package.list_models():
        try:
            size = parameters(partial(_build, name))
        except Exception:
            size = 0  # that it cannot be made is to be seen in the table
        if size <= _MOST or name in _LARGE:
            found.append(name)
    return found


def make(name: str, seed: int) -> Specimen:
    """A model with random values."""
    sizes = (64, 112, 224, 299)
    film = {"x": (2, 3, 8, 112, 112)}
    return Model(
        seed,
        partial(_build, name),
        *(partial(_image, size) for size in sizes),
        lambda: {key: torch.randn(*shape) for key, shape in film.items()},
        lambda: {"image1": torch.randn(1, 3, 128, 128), "image2": torch.randn(1, 3, 128, 128)},
    )


def _build(name: str) -> Any:
    without = {"weights": None, "weights_backbone": None} if _has_backbone(name) else {"weights": None}
    return package.get_model(name, **without)


def _has_backbone(name: str) -> bool:
    module = package.get_model_builder(name).__module__
    return ".detection" in module or ".segmentation" in module


def _image(size: int) -> dict[str, Any]:
    return {"x": torch.randn(2, 3, size, size)}
