"""Strides of tensors that are not in the usual order, as the factors of a decomposition or convolutions in ``channels_last``.

Libraries of linear algebra round otherwise in another order, so a training that goes on bit for bit needs them. They are
saved beside the value, which itself is in the usual order, where TensorFlow does not look::

    net/weight/.OPTIMIZER_SLOT/optimizer/Q/.ATTRIBUTES/strides      int64, in elements, one for each dimension

Tensors that a restore makes get them: the state of optimizers, and what was on the meta device in the usual order. Tensors that
have memory already keep their own.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from milepost.errors import CorruptCheckpointError
from milepost.graph.adapter import Array
from milepost.graph.by_identity import ByIdentity

STRIDES: Final = "strides"
_MOST_UNUSED: Final = 4
"""How many times the memory of its elements a tensor with gaps may take; one of more gaps is made without any."""
_kept: Final[ByIdentity[bool]] = ByIdentity()
"""Tensors whose strides are saved or restored whatever they are."""


def strides_to_save(tensor: torch.Tensor) -> Array | None:
    """The strides of a tensor, or None if they are the usual ones."""
    usual = tensor.is_contiguous() and (1 not in tensor.shape or tensor.stride() == _usual(tuple(tensor.shape)))
    if (usual or not tensor.numel()) and not is_kept(tensor):
        return None
    return np.array(tensor.stride(), np.int64)


def unlike_layout(value: torch.Tensor, variable: torch.Tensor) -> bool:
    """Whether a value would be made with other strides if these were not saved, since it is made like its variable."""
    if value.shape != variable.shape or variable.is_contiguous() or not value.is_contiguous():
        return False
    return bool(torch.empty_like(variable, device="meta").stride() != value.stride())


def keep_layout(tensor: torch.Tensor) -> None:
    """Has the strides of a tensor saved, and restored into it."""
    _kept[tensor] = True


def is_kept(tensor: torch.Tensor) -> bool:
    """Whether `keep_layout` was called for this tensor."""
    return tensor in _kept


def empty_with_strides(like: torch.Tensor, device: torch.device, strides: Array) -> torch.Tensor:
    """A tensor of the type and shape of another, whose elements can be written, with saved strides.

    Args:
        like: The other.
        device: Where it is to be.
        strides: What `strides_to_save` returned.

    Raises:
        CorruptCheckpointError: These are no strides of such a tensor.
    """
    shape = tuple(like.shape)
    steps = strides.tolist() if strides.ndim == 1 and strides.dtype == np.int64 else None
    if steps is None or len(steps) != len(shape) or any(step < 0 for step in steps):
        raise CorruptCheckpointError(
            "these are no strides of a tensor",
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
    """Strides in the same order without gaps."""
    dense, step = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda axis: (steps[axis], -axis)):
        dense[axis] = step
        step *= max(1, shape[axis])
    return dense


def _overlaps(shape: tuple[int, ...], steps: list[int]) -> bool:
    """Whether two elements may stand in one place; so too for some strange strides of which none do."""
    end = 0
    for step, size in sorted((step, size) for step, size in zip(steps, shape, strict=True) if size > 1):
        if step <= end:
            return True
        end += step * (size - 1)
    return False
