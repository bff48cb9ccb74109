"""Descriptions of tensors: element types, shapes, and boxes cut from a tensor."""

from milepost.tensor.dtype import DType
from milepost.tensor.pieces import OnDevice, Piece, PieceSource, PiecewiseArray
from milepost.tensor.sharded import Shard, ShardedArray
from milepost.tensor.slice import TensorSlice
from milepost.tensor.spec import TensorSpec

__all__ = [
    "DType",
    "OnDevice",
    "Piece",
    "PieceSource",
    "PiecewiseArray",
    "Shard",
    "ShardedArray",
    "TensorSlice",
    "TensorSpec",
]
