"""What a tensor is apart from its bytes: element type, shape, and boxes cut from it."""

from milepost.tensor.dtype import DType
from milepost.tensor.pieces import Piece, PieceSource, PiecewiseArray
from milepost.tensor.slice import TensorSlice
from milepost.tensor.spec import TensorSpec

__all__ = ["DType", "Piece", "PieceSource", "PiecewiseArray", "TensorSlice", "TensorSpec"]
