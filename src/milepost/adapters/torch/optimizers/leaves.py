"""Parameters in the state of an optimizer, and other tensors in it that gradients are computed for.

Such a tensor is restored as what it was. Its values are those of any tensor. What it was is a hint (`milepost.graph.saved.hints`): two booleans, is it
a parameter, and does it require a gradient. Without the hint, a restore leaves tensors as they are, and makes plain ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from milepost.adapters.torch.hints import GRADIENT, keep_hint
from milepost.errors import CorruptCheckpointError
from milepost.graph.adapter import Array


def is_leaf_with_gradient(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a parameter, or requires a gradient without being computed from others."""
    return type(tensor) is torch.nn.Parameter or (
        type(tensor) is torch.Tensor and tensor.requires_grad and tensor.is_leaf
    )


def keep_gradient(tensor: torch.Tensor) -> None:
    """Makes later saves and restores keep whether this tensor is a parameter, and whether it requires a gradient."""
    keep_hint(tensor, GRADIENT)


def gradient_to_save(tensor: torch.Tensor) -> Array | None:
    """What is saved besides its value of a tensor for which `keep_gradient` was called. None if it has become a plain tensor."""
    if not is_leaf_with_gradient(tensor):
        return None
    return np.array([type(tensor) is torch.nn.Parameter, tensor.requires_grad])


def set_gradient(tensor: torch.Tensor, saved: Array) -> None:
    """Makes a tensor what the saved one was.

    Args:
        tensor: A tensor that was not computed from others.
        saved: What `gradient_to_save` returned.

    Raises:
        CorruptCheckpointError: It has not returned this.
    """
    if saved.shape != (2,) or saved.dtype != np.bool_ or (saved[1] and not _may_require(tensor)):
        raise CorruptCheckpointError(
            "this does not say whether a tensor is a parameter and requires a gradient",
            expected="two booleans, the second of which is false for a tensor of integers",
            found=f"{saved.dtype} of shape {saved.shape}: {saved.reshape(-1)[:10].tolist()}",
            remedy="restore another checkpoint",
        )
    is_parameter, required = saved.tolist()
    _become(tensor, torch.nn.Parameter if is_parameter else torch.Tensor, required)


def before_gradient(tensor: torch.Tensor) -> Callable[[], object]:
    """Called before a `set_gradient`. Returns a function that makes the tensor what it is now."""
    kind, required = type(tensor), tensor.requires_grad
    return lambda: _become(tensor, kind, required)


def _become(tensor: torch.Tensor, kind: type, required: bool) -> None:
    if type(tensor) is not kind:
        tensor.__class__ = kind  # so it stays the same object for all who hold it
    tensor.requires_grad_(required)


def _may_require(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())
