"""Makes torchvision importable where its compiled operators are made for another build of PyTorch.

Wheels of torchvision from a registry need CUDA's libraries; without them its Python code fails when it names operators that
nobody has defined. Models need none of these until they suppress overlapping boxes.
"""

from __future__ import annotations

import importlib
from typing import Any

_OPERATORS = ("nms", "qnms")
_defined: list[Any] = []


def define() -> None:
    """Defines the names of the operators if torchvision cannot be imported without."""
    import torch

    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in _OPERATORS:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _defined.append(library)
        importlib.import_module("torchvision")
