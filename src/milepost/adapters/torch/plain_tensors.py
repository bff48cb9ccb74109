"""Tensors as parts of plain state: with their strides, and those that lie in one memory in one memory again.

::

    in the usual order       {"!": "torch", "value": an array}
    otherwise                {"!": "torch.strided", "value": {"strides": [1, 3], "value": an array}}
    in another's memory      {"!": "torch.view", "value": {"of": a tensor, "dtype": "float32", "offset": 2, "shape": [2],
                              "strides": [1]}}

The tensor that a view is ``of`` is shared (`milepost.graph.plain_sharing`) between all that lie in its memory: one of them, if
it covers all of it, or else a vector made of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from milepost.adapters.torch.layouts import empty_with_strides, strides_to_save
from milepost.adapters.torch.memory import as_array, as_tensor, write
from milepost.graph.plain_kinds import overlaps, register_kind

_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)
_ALIGNED: Final = 16
"""Bytes of the largest element."""


class View(NamedTuple):
    """A tensor in the memory of another; sizes are in elements.

    Attributes:
        of: The other.
        dtype: Element type.
        offset: Where it begins.
        shape: Its shape.
        strides: Its strides.
    """

    of: torch.Tensor
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def owners(self) -> tuple[torch.Tensor]:
        """What it lies in."""
        return (self.of,)


class _Piece(NamedTuple):
    """The bytes in a storage between the first and the last element of a tensor."""

    start: int
    stop: int
    tensor: torch.Tensor


def overlapping(tensors: Sequence[Any]) -> dict[int, View]:
    """The tensors among these that lie in the memory of others, by identity, as views."""
    storages: dict[Any, list[_Piece]] = {}
    for tensor in tensors:
        if type(tensor) not in _PLAIN or tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
            continue
        if not tensor.numel() or tensor.is_conj() or tensor.is_neg():
            continue
        size = tensor.element_size()
        extent = 1 + sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
        start = tensor.storage_offset() * size
        piece = _Piece(start, start + extent * size, tensor)
        storages.setdefault((tensor.device, tensor.untyped_storage().data_ptr()), []).append(piece)
    found: dict[int, View] = {}
    for pieces in storages.values():
        if len(pieces) > 1:
            for together in _touching(pieces):
                found.update(_views(together))
    return found


def _touching(pieces: list[_Piece]) -> Iterator[list[_Piece]]:
    """Those of several pieces of a storage that overlap, together."""
    together: list[_Piece] = []
    stop = 0
    for piece in sorted(pieces, key=lambda each: each[:2]):
        if together and piece.start >= stop:
            yield together
            together = []
        together.append(piece)
        stop = max(stop, piece.stop) if len(together) > 1 else piece.stop
    yield together


def _views(pieces: list[_Piece]) -> Iterator[tuple[int, View]]:
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
            yield id(tensor), View(owner, tensor.dtype, offset, tuple(tensor.shape), tensor.stride())


def _view_members(view: View) -> dict[str, Any]:
    name = str(view.dtype).removeprefix("torch.")
    shape, strides = list(view.shape), list(view.strides)
    return {"of": view.of, "dtype": name, "offset": view.offset, "shape": shape, "strides": strides}


def _from_view_members(members: Mapping[str, Any]) -> torch.Tensor:
    dtype = getattr(torch, members["dtype"])
    storage = members["of"].untyped_storage()
    whole = torch.empty(0, dtype=dtype)
    whole.set_(storage, 0, (storage.nbytes() // whole.element_size(),), (1,))
    return whole.as_strided(members["shape"], members["strides"], members["offset"])


def _with_strides(value: Any) -> dict[str, Any]:
    return {"strides": list(value.stride()), "value": as_array(value)}


def _from_strides(members: Any) -> torch.Tensor:
    value = as_tensor(members["value"].copy())
    tensor = empty_with_strides(value, value.device, np.array(members["strides"], np.int64))
    write(tensor, members["value"])
    return tensor


register_kind(
    "torch",
    lambda value: isinstance(value, torch.Tensor),
    as_array,
    lambda array: as_tensor(array.copy()),
    mutable=True,
)
register_kind(
    "torch.strided",
    lambda value: isinstance(value, torch.Tensor) and strides_to_save(value) is not None,
    _with_strides,
    _from_strides,
)
register_kind("torch.view", lambda value: type(value) is View, _view_members, _from_view_members)
overlaps["torch"] = overlapping
