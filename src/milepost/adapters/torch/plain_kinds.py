"""Sizes, element types, devices and layouts of PyTorch as parts of plain state."""

from __future__ import annotations

from typing import Any

import torch

from milepost.plain_state.encoding import register_kind


def _dtype(name: Any) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{name!r} is not an element type")
    return dtype


def _layout(name: Any) -> torch.layout:
    layout = vars(torch).get(name)
    if not isinstance(layout, torch.layout):
        raise TypeError(f"{name!r} is not a layout")
    return layout


register_kind("torch.Size", lambda value: type(value) is torch.Size, list, torch.Size)
register_kind(
    "torch.dtype", lambda value: isinstance(value, torch.dtype), lambda value: str(value).removeprefix("torch."), _dtype
)
register_kind("torch.device", lambda value: isinstance(value, torch.device), str, torch.device)
register_kind(
    "torch.layout",
    lambda value: isinstance(value, torch.layout),
    lambda value: str(value).removeprefix("torch."),
    _layout,
)
