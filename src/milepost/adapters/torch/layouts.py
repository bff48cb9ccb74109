"""Strides of tensors that are not contiguous, such as the factors of a decomposition or convolutions in ``channels_last``.

Libraries of linear algebra round differently in another order, so a run that resumes bit for bit needs the strides. The value is contiguous
in the file, and its strides are a hint in the object graph (`milepost.graph.saved.hints`): in elements, one for each dimension.

A restore uses them for tensors that it makes: the state of optimizers, and contiguous tensors on the meta device. Tensors that have
memory already keep their own strides.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from milepost.adapters.optimizer_settings import STRIDES
from milepost.adapters.torch.hints import keep_hint
from milepost.errors import CorruptCheckpointError
from milepost.graph.adapter import Array

_MOST_UNUSED: Final = 4
"""A tensor with gaps may take this many times the memory of its elements. If it would take more, it is made without gaps."""


def strides_to_save(tensor: torch.Tensor, *, keep: bool = False) -> Array | None:
    """The strides of a tensor, or None if it is contiguous. ``keep`` says that `keep_layout` was called for it: then never None."""
    usual = tensor.is_contiguous() and (1 not in tensor.shape or tensor.stride() == _usual(tuple(tensor.shape)))
    if (usual or not tensor.numel()) and not keep:
        return None
    return np.array(tensor.stride(), np.int64)


def unlike_layout(value: torch.Tensor, variable: torch.Tensor) -> bool:
    """Whether a restore would give a value other strides if they were not saved, since it makes the value like its variable."""
    if value.shape != variable.shape or variable.is_contiguous() or not value.is_contiguous():
        return False
    return bool(torch.empty_like(variable, device="meta").stride() != value.stride())


def is_made_alike(value: torch.Tensor, variable: torch.Tensor) -> bool:
    """Whether a value has the strides that a restore gives to it if none were saved."""
    if value.is_contiguous():
        return not unlike_layout(value, variable)
    return bool(value.shape == variable.shape and torch.empty_like(variable, device="meta").stride() == value.stride())


def keep_layout(tensor: torch.Tensor) -> None:
    """Makes later saves and restores keep the strides of this tensor."""
    keep_hint(tensor, STRIDES)


def empty_with_strides(like: torch.Tensor, device: torch.device, strides: Array) -> torch.Tensor:
    """Makes a tensor with saved strides, whose elements can be written.

    Args:
        like: A tensor of the same element type and shape.
        device: The device of the new tensor.
        strides: What `strides_to_save` returned.

    Raises:
        CorruptCheckpointError: These are not the strides of such a tensor.
    """
    shape = tuple(like.shape)
    steps = strides.tolist() if strides.ndim == 1 and strides.dtype == np.int64 else None
    if steps is None or len(steps) != len(shape) or any(step < 0 for step in steps):
        raise CorruptCheckpointError(
            "these are not the strides of a tensor of this shape",
            expected=f"{len(shape)} numbers that are not negative",
            found=f"{strides.dtype} of shape {strides.shape}: {strides.reshape(-1)[:10].tolist()}",
            remedy="restore another checkpoint",
        )
    extent = 1 + sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
    if _overlaps(shape, steps) or extent > _MOST_UNUSED * max(1, like.numel()):
        steps = _dense(shape, steps)
    return torch.empty_strided(shape, steps, dtype=like.dtype, device=device)


def _usual(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(_dense(shape, list(range(len(shape), 0, -1))))


def _dense(shape: tuple[int, ...], steps: list[int]) -> list[int]:
    """Strides of the same order of dimensions, without gaps."""
    dense, step = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda axis: (steps[axis], -axis)):
        dense[axis] = step
        step *= max(1, shape[axis])
    return dense


def _overlaps(shape: tuple[int, ...], steps: list[int]) -> bool:
    """Whether two elements may share memory. This is also true for some unusual strides for which none do."""
    end = 0
    for step, size in sorted((step, size) for step, size in zip(steps, shape, strict=True) if size > 1):
        if step <= end:
            return True
        end += step * (size - 1)
    return False
