"""Quantized and sparse tensors as parts of plain state. Each is saved as the tensors that it consists of.

::

    {"!": "torch.quantized", "value": {"dtype": "qint8", "values": a tensor, "scale": 0.1, "zero_point": 3}}
    {"!": "torch.quantized", "value": {"dtype": "qint8", "values": a tensor, "scales": a tensor, "zero_points": a tensor,
                              "axis": 0}}
    {"!": "torch.sparse", "value": {"layout": "sparse_coo", "shape": [3, 3], "parts": [two tensors], "is_coalesced": true}}
    {"!": "torch.sparse", "value": {"layout": "sparse_csr", "shape": [3, 3], "parts": [three tensors]}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from milepost.adapters.torch.private import per_channel_tensor, per_tensor_tensor

_QUANTIZED: Final = (torch.qint8, torch.quint8, torch.qint32)
"""The quantized types with one element in each byte or more; of the others, several elements share a byte."""
_PER_TENSOR: Final = torch.per_tensor_affine
_PER_CHANNEL: Final = torch.per_channel_affine
_BY_ROWS: Final = (torch.sparse_csr, torch.sparse_bsr)
_BY_COLUMNS: Final = (torch.sparse_csc, torch.sparse_bsc)


def is_quantized(value: Any) -> bool:
    """Whether a value is a quantized tensor that can be saved as the tensors it consists of."""
    return (
        type(value) is torch.Tensor
        and value.is_quantized
        and value.dtype in _QUANTIZED
        and value.qscheme() in (_PER_TENSOR, _PER_CHANNEL)
    )


def quantized_members(value: torch.Tensor) -> dict[str, Any]:
    """The members of a quantized tensor, as in the grammar above."""
    members: dict[str, Any] = {"dtype": str(value.dtype).removeprefix("torch."), "values": value.int_repr()}
    if value.qscheme() == _PER_TENSOR:
        return {**members, "scale": value.q_scale(), "zero_point": value.q_zero_point()}
    scales, zero_points = value.q_per_channel_scales(), value.q_per_channel_zero_points()
    return {**members, "scales": scales, "zero_points": zero_points, "axis": value.q_per_channel_axis()}


def from_quantized(members: Mapping[str, Any]) -> torch.Tensor:
    """Makes a quantized tensor of its members."""
    values = members["values"]
    if "axis" in members:
        return per_channel_tensor(values, members["scales"], members["zero_points"], members["axis"])
    return per_tensor_tensor(values, members["scale"], members["zero_point"])


def is_sparse(value: Any) -> bool:
    """Whether a value is a sparse tensor."""
    return type(value) is torch.Tensor and value.layout in (torch.sparse_coo, *_BY_ROWS, *_BY_COLUMNS)


def sparse_members(value: torch.Tensor) -> dict[str, Any]:
    """The members of a sparse tensor, as in the grammar above."""
    value = value.detach()
    members: dict[str, Any] = {"layout": str(value.layout).removeprefix("torch."), "shape": list(value.shape)}
    if value.layout is torch.sparse_coo:
        # The public accessors refuse a tensor in which an index may occur twice.
        return {**members, "parts": [value._indices(), value._values()], "is_coalesced": value.is_coalesced()}
    if value.layout in _BY_ROWS:
        return {**members, "parts": [value.crow_indices(), value.col_indices(), value.values()]}
    return {**members, "parts": [value.ccol_indices(), value.row_indices(), value.values()]}


def from_sparse(members: Mapping[str, Any]) -> torch.Tensor:
    """Makes a sparse tensor of its members, after a check that they fit each other."""
    parts, shape = members["parts"], tuple(members["shape"])
    if members["layout"] == "sparse_coo":
        tensor = torch.sparse_coo_tensor(*parts, shape, check_invariants=True, is_coalesced=members["is_coalesced"])
    else:
        layout = getattr(torch, members["layout"])
        tensor = torch.sparse_compressed_tensor(*parts, shape, layout=layout, check_invariants=True)
    return tensor
