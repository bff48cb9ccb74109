"""Which tensors cannot be saved, with the reason and a remedy."""

from __future__ import annotations

from typing import Any

import torch

from milepost.adapters.torch.private import UninitializedTensorMixin, is_traceable_wrapper_subclass
from milepost.graph.omissions import Omission


def refusal_of(tensor: Any) -> Omission | None:
    """Why a tensor cannot be saved at all; None if it can be saved, as a whole or in parts."""
    if isinstance(tensor, UninitializedTensorMixin):
        return Omission("a lazy parameter that has no shape yet", "call the module once before it is saved")
    if hasattr(tensor, "device_mesh"):
        return Omission("a DTensor, whose parts other processes hold", "save what its full_tensor() returns")
    if tensor.is_nested:
        return Omission("a nested tensor", "hold the tensors that its unbind() returns")
    kind = type(tensor)
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ and not is_traceable_wrapper_subclass(tensor):
        return Omission(
            f"a {kind.__name__}, a tensor class without __tensor_flatten__()",
            "hold the tensors that it consists of instead",
        )
    return None


def leaf_refusal_of(tensor: Any) -> Omission | None:
    """Why a tensor cannot be saved as an object of its own; None if it can."""
    refusal = refusal_of(tensor)
    if refusal is not None:
        return refusal
    if tensor.is_quantized:
        return Omission("a quantized tensor", "hold its int_repr(), scales and zero points as tensors of their own")
    if tensor.layout is not torch.strided:
        return Omission(f"a tensor of layout {tensor.layout}", "hold its indices and values as tensors of their own")
    return None
