"""Tensors of an open checkpoint that are read while another checkpoint is written, so that no more than some megabytes of them are in memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from milepost.bundle import Boxes, BundleReader
from milepost.bundle.memory import Array
from milepost.conversion.plan import Exported
from milepost.foreign import ForeignReader
from milepost.graph.adapter import Adapter, Value, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.tensor import DType, PiecewiseArray, TensorSlice, TensorSpec
from milepost.tensor.pieces import Piece, Slices

_ARRAY: Final = "numpy.ndarray"


class TensorSource:
    """The tensors of an open checkpoint.

    A tensor that cannot be read in parts, such as one of Orbax, is read as a whole. It is kept until the next such tensor is read.

    Args:
        reader: The open checkpoint.
    """

    def __init__(self, reader: BundleReader) -> None:
        self.reader = reader
        self._lock = threading.Lock()
        self._kept: tuple[str, Array] | None = None

    def array(self, tensor: Exported) -> Array | PiecewiseArray:
        """A tensor in the element type of the new file, verified. Text is read at once, everything else when it is written.

        Raises:
            CorruptCheckpointError: Its bytes are damaged.
        """
        shape = tensor.spec.shape
        if tensor.spec.dtype.is_bytes or not tensor.spec.nbytes or not shape:
            return tensor.converted(self.reader.read(tensor.key), self.reader.prefix)
        self.reader.check(tensor.key)
        piece = Piece((0,) * len(shape), shape, _StreamedElements(self, tensor))
        return PiecewiseArray(tensor.spec.dtype.numpy, shape, [piece], constant=True)

    def part(self, tensor: Exported, box: Slices) -> Array:
        """A box of a tensor."""
        wanted = TensorSlice(tuple((each.start, each.stop - each.start) for each in box))
        if not isinstance(self.reader, ForeignReader):
            return tensor.converted(Boxes(self.reader, tensor.key).read(wanted), self.reader.prefix)
        if self.reader.has_parts(tensor.key):
            return tensor.converted(self.reader.read(tensor.key, wanted), self.reader.prefix)
        with self._lock:
            if self._kept is None or self._kept[0] != tensor.key:
                self._kept = None
                self._kept = tensor.key, self.reader.read(tensor.key)
            return tensor.converted(self._kept[1][box], self.reader.prefix)


class _StreamedElements:
    """The elements of a tensor, box by box; see `milepost.tensor.pieces.PieceSource`."""

    def __init__(self, source: TensorSource, tensor: Exported) -> None:
        self._source = source
        self._tensor = tensor

    def __getitem__(self, box: Slices, /) -> Array:
        return self._source.part(self._tensor, box)


class StreamedArray:
    """An array in a tree that is saved. It is read while it is written.

    Args:
        source: Where its elements are.
        key: Its key.
        hints: Its hints, as `milepost.graph.saved.hints` has them.
    """

    def __init__(self, source: TensorSource, key: str, hints: Mapping[str, Array]) -> None:
        spec = source.reader.spec(key)
        self.source = source
        self.hints = hints
        self.tensor = Exported(key, key, spec, spec)

    @property
    def spec(self) -> TensorSpec:
        """Its element type and shape."""
        return self.tensor.spec

    def read(self) -> Array:
        """All of it, in memory."""
        return self.source.reader.read(self.tensor.key)


class StreamedArrayAdapter(Adapter):
    """`StreamedArray`: one value, in the place of an array of NumPy."""

    leaf = True
    array_type = _ARRAY

    def handles(self, kind: type) -> bool:
        return kind is StreamedArray

    def is_value(self, obj: Any) -> bool:
        return True

    def is_new_array(self, obj: Any) -> bool:
        return True

    def hints_to_save(self, obj: StreamedArray) -> Mapping[str, Array]:
        return obj.hints

    def values(self, obj: StreamedArray) -> Sequence[Value]:
        dtype: DType = obj.spec.dtype
        return (Value(VARIABLE_VALUE, dtype, obj.spec.shape, lambda: obj.source.array(obj.tensor)),)


register(StreamedArrayAdapter(), last=True)
