"""Tensors as parts of plain state. Their strides are saved, and tensors that share memory share it again after a restore.

::

    contiguous               {"!": "torch", "value": an array}
    with other strides       {"!": "torch.strided", "value": {"strides": [1, 3], "value": an array}}
    in another's memory      {"!": "torch.view", "value": {"of": a tensor, "dtype": "float32", "offset": 2, "shape": [2],
                              "strides": [1]}}
    a parameter, or a leaf   {"!": "torch.gradient", "value": {"parameter": true, "required": true, "value": a tensor}}

The tensor that a view is ``of`` is shared (`milepost.plain_state.sharing`) by all tensors in its memory. It is one of them if that
covers all of the memory, and otherwise a vector that does.
Quantized and sparse tensors are in `plain_parts`. The kinds are all registered here, since their order is the order in which they are
asked: ``torch``, which refuses what no other kind takes, comes last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from milepost.adapters.torch.layouts import empty_with_strides, strides_to_save
from milepost.adapters.torch.memory import as_array, as_tensor, write
from milepost.adapters.torch.plain_parts import (
    from_quantized,
    from_sparse,
    is_quantized,
    is_sparse,
    quantized_members,
    sparse_members,
)
from milepost.adapters.torch.refused import refusal_of
from milepost.errors import UnsupportedError
from milepost.graph.omissions import Omission
from milepost.plain_state.kinds import overlaps, register_kind

_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)
_ALIGNED: Final = 16
"""Bytes of the largest element."""


class MemoryView(NamedTuple):
    """A tensor in the memory of another.

    Attributes:
        of: The other tensor.
        dtype: Its element type.
        offset: Where it begins, in elements.
        shape: Its shape.
        strides: Its strides, in elements.
        gradient: What `_gradient_of` returns for it.
    """

    of: torch.Tensor
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    gradient: dict[str, bool] | None

    def owners(self) -> tuple[torch.Tensor]:
        """The tensors in whose memory it is."""
        return (self.of,)


class _StorageRange(NamedTuple):
    """The bytes in a storage from the first to the last element of a tensor."""

    start: int
    stop: int
    tensor: torch.Tensor


def overlapping(tensors: Sequence[Any]) -> dict[int, MemoryView]:
    """The views for those of some tensors that are in the memory of others, by the identity of the tensor."""
    storages: dict[Any, list[_StorageRange]] = {}
    for tensor in tensors:
        if not is_plain(tensor):
            continue
        if not tensor.numel() or tensor.is_conj() or tensor.is_neg():
            continue
        size = tensor.element_size()
        extent = 1 + sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
        start = tensor.storage_offset() * size
        piece = _StorageRange(start, start + extent * size, tensor)
        storages.setdefault((tensor.device, tensor.untyped_storage().data_ptr()), []).append(piece)
    views: dict[int, MemoryView] = {}
    for pieces in storages.values():
        if len(pieces) > 1:
            for together in _touching(pieces):
                views.update(_views(together))
    return views


def _touching(pieces: list[_StorageRange]) -> Iterator[list[_StorageRange]]:
    """Groups pieces of a storage that overlap."""
    together: list[_StorageRange] = []
    stop = 0
    for piece in sorted(pieces, key=lambda each: each[:2]):
        if together and piece.start >= stop:
            yield together
            together = []
        together.append(piece)
        stop = max(stop, piece.stop) if len(together) > 1 else piece.stop
    yield together


def _views(pieces: list[_StorageRange]) -> Iterator[tuple[int, MemoryView]]:
    if len(pieces) < 2:
        return
    start, stop = min(each.start for each in pieces), max(each.stop for each in pieces)
    dtypes = {each.tensor.dtype for each in pieces}
    owner = next((each.tensor for each in pieces if each[:2] == (start, stop) and each.tensor.is_contiguous()), None)
    if len(dtypes) > 1:
        owner, start = None, start // _ALIGNED * _ALIGNED
    if owner is None:
        dtype = torch.uint8 if len(dtypes) > 1 else pieces[0].tensor.dtype
        owner = torch.empty(0, dtype=dtype, device=pieces[0].tensor.device)
        size = owner.element_size()
        owner.set_(pieces[0].tensor.untyped_storage(), start // size, ((stop - start) // size,), (1,))
    for piece in pieces:
        tensor = piece.tensor
        if tensor is not owner:
            offset = (piece.start - start) // tensor.element_size()
            gradient = _gradient_of(tensor)
            yield id(tensor), MemoryView(owner, tensor.dtype, offset, tuple(tensor.shape), tensor.stride(), gradient)


def _view_members(view: MemoryView) -> dict[str, Any]:
    name = str(view.dtype).removeprefix("torch.")
    shape, strides = list(view.shape), list(view.strides)
    members = {"of": view.of, "dtype": name, "offset": view.offset, "shape": shape, "strides": strides}
    return members if view.gradient is None else {**members, "gradient": view.gradient}


def _from_view_members(members: Mapping[str, Any]) -> torch.Tensor:
    dtype = getattr(torch, members["dtype"])
    storage = members["of"].untyped_storage()
    whole = torch.empty(0, dtype=dtype)
    whole.set_(storage, 0, (storage.nbytes() // whole.element_size(),), (1,))
    view = whole.as_strided(members["shape"], members["strides"], members["offset"])
    return _with_gradient(view, members["gradient"]) if "gradient" in members else view


def _gradient_of(tensor: torch.Tensor) -> dict[str, bool] | None:
    """Whether a tensor is a parameter, and whether it requires a gradient; None if neither, or if it was computed from others."""
    is_parameter = type(tensor) is torch.nn.Parameter
    if not is_parameter and not (tensor.requires_grad and tensor.is_leaf):
        return None
    return {"parameter": is_parameter, "required": tensor.requires_grad}


def _with_gradient(tensor: torch.Tensor, gradient: Mapping[str, bool]) -> torch.Tensor:
    if gradient["parameter"]:
        return torch.nn.Parameter(tensor, requires_grad=gradient["required"])
    return tensor.requires_grad_(gradient["required"])


def is_plain(value: Any) -> bool:
    """Whether a value is a strided tensor with values, of one of PyTorch's own two classes."""
    return (
        type(value) in _PLAIN
        and value.layout is torch.strided
        and not (value.is_nested or value.is_quantized or value.is_meta)
    )


def _plain_array(value: torch.Tensor) -> Any:
    refusal = refusal_of(value, in_parts=True)
    if refusal is None and not is_plain(value):
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        refusal = Omission(f"a {name} on {value.device}, {value.layout}", "hold a plain tensor of its values")
    if refusal is not None:
        raise UnsupportedError("this tensor cannot be part of plain state", found=refusal.reason, remedy=refusal.remedy)
    return as_array(value)


def _with_strides(value: torch.Tensor) -> dict[str, Any]:
    return {"strides": list(value.stride()), "value": as_array(value)}


def _from_strides(members: Any) -> torch.Tensor:
    value = as_tensor(members["value"].copy())
    tensor = empty_with_strides(value, value.device, np.array(members["strides"], np.int64))
    write(tensor, members["value"])
    return tensor


register_kind(
    "torch",
    lambda value: isinstance(value, torch.Tensor),
    _plain_array,
    lambda array: as_tensor(array.copy()),
    mutable=True,
)
register_kind(
    "torch.strided",
    lambda value: is_plain(value) and strides_to_save(value) is not None,
    _with_strides,
    _from_strides,
)
register_kind(
    "torch.gradient",
    lambda value: is_plain(value) and _gradient_of(value) is not None,
    lambda value: {**(_gradient_of(value) or {}), "value": value.detach()},
    lambda members: _with_gradient(members["value"], members),
)
register_kind("torch.quantized", is_quantized, quantized_members, from_quantized)
register_kind("torch.sparse", is_sparse, sparse_members, from_sparse)
register_kind("torch.view", lambda value: type(value) is MemoryView, _view_members, _from_view_members)
overlaps["torch"] = overlapping
