"""Writes saved tensors that are part of plain state into the tensors that are there already, because programs may hold these."""

from __future__ import annotations

from typing import Any

import torch

from milepost.adapters.torch.plain_tensors import is_plain, overlapping
from milepost.plain_state.sharing import inside


def into(present: Any, value: Any) -> Any:
    """A saved value with the tensors that are there already, where these have its element type, shape and strides.

    If parts of either value share objects or memory, the saved value is returned as it is.

    Args:
        present: The value that it replaces. The tensors in it are changed.
        value: The saved value: a tensor, or lists, tuples and dicts with tensors in them.
    """
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
    joined = _joined(present, value, pairs)
    if not pairs or (joined is not present and (_shares(present) or _shares(value))):
        return value
    with torch.no_grad():
        for old, new in pairs:
            old.copy_(new)
    return joined


def _joined(present: Any, value: Any, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """A value in which tensors are replaced by present ones like them, and the pairs of these."""
    if isinstance(value, torch.Tensor):
        if not (isinstance(present, torch.Tensor) and _alike(present, value)):
            return value
        pairs.append((present, value))
        return present
    kind = type(value)
    if type(present) is not kind or kind not in (list, tuple, dict) or len(present) != len(value):
        return value
    if kind is dict:
        return {name: _joined(present.get(name), each, pairs) for name, each in value.items()}
    return kind(_joined(old, new, pairs) for old, new in zip(present, value, strict=True))


def _alike(present: torch.Tensor, value: torch.Tensor) -> bool:
    if (present.dtype, present.shape) != (value.dtype, value.shape) or not (is_plain(present) and is_plain(value)):
        return False
    return not present.is_meta and (value.ndim < 2 or bool(present.stride() == value.stride()))


def _shares(value: Any) -> bool:
    """Whether an object is in several places of a value, or tensors in it share memory."""
    pending, seen, tensors = [value], set[int](), []
    for part in pending:
        within = inside(part)
        if within is None and not isinstance(part, torch.Tensor):
            continue
        if id(part) in seen:
            return True
        seen.add(id(part))
        if isinstance(part, torch.Tensor):
            tensors.append(part)
        pending.extend(within or ())
    return bool(overlapping(tensors))
