"""A tensor in a checkpoint, of which parts are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from milepost.bundle import Boxes, BundleReader
from milepost.errors import MismatchError, UnsupportedError
from milepost.graph.adapter import Array
from milepost.tensor import DType, TensorSlice
from milepost.tensor.spec import format_shape


class SavedTensor:
    """A tensor in a checkpoint or in a file of another library, of which parts are read, as of a NumPy array. `CheckpointReader` makes it.

    An index may have integers, slices with any step, and ``...``. Only the part is read, if the format allows it: milepost's own files,
    safetensors, files of ``torch.save`` and Orbax, and those of NumPy and Keras that are not compressed. Elsewhere the whole tensor is read. A
    checksum is of a whole tensor, so the first part of one reads all its bytes to verify it, a few megabytes at a time.

    Attributes:
        name: The key.
        shape: The shape.
        dtype: The element type, as a NumPy dtype.

    Raises:
        MismatchError: An index reaches outside the tensor.
        UnsupportedError: An index is none of these.

    Example:
        >>> import milepost, numpy as np, tempfile
        >>> path = milepost.Checkpoint(table=np.arange(12).reshape(4, 3)).write(tempfile.mkdtemp() + "/ckpt")
        >>> table = milepost.load_checkpoint(path)["table"]
        >>> table
        <SavedTensor 'table/.ATTRIBUTES/VARIABLE_VALUE': int64[4,3]>
        >>> table[2:, 0], table[-1]
        (array([6, 9]), array([ 9, 10, 11]))
    """

    def __init__(self, reader: BundleReader, name: str) -> None:
        self._reader = reader
        self._spec = reader.spec(name)
        self._is_verified = False
        self.name = name
        self.shape = self._spec.shape
        self.dtype: np.dtype[Any] = self._spec.dtype.numpy

    @property
    def element_type(self) -> DType:
        """The element type as milepost names it."""
        return self._spec.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._spec.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self._spec.nbytes

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        """A part of the tensor, in memory of its own. An element is a NumPy scalar, or ``bytes``."""
        part = _part(index, self.shape, self.name)
        box = TensorSlice(tuple((start, stop - start) for start, stop in part.box))
        elements = self._read(box)[part.inside]
        return elements if isinstance(elements, np.ndarray) and elements.ndim else np.asarray(elements)[()]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self._reader.read(self.name), dtype)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {self._spec}>"

    def _read(self, box: TensorSlice) -> Array:
        is_whole = box.shape(self.shape) == self.shape
        if is_whole or self._reader.extent(self.name) is None:
            return self._reader.read(self.name, None if is_whole else box)
        if not self._is_verified:
            self._reader.check(self.name)
            self._is_verified = True
        return Boxes(self._reader, self.name).read(box)


class _IndexRange(NamedTuple):
    """What an index selects.

    Attributes:
        box: The smallest box that has it: start and stop in each dimension.
        inside: The index of it in the box.
    """

    box: tuple[tuple[int, int], ...]
    inside: tuple[int | slice, ...]


def _part(index: Any, shape: tuple[int, ...], name: str) -> _IndexRange:
    """What an index selects of a tensor of a shape."""
    indices = index if isinstance(index, tuple) else (index,)
    count = sum(each is not Ellipsis for each in indices)
    ellipses = [position for position, each in enumerate(indices) if each is Ellipsis]
    is_known = all(each is Ellipsis or isinstance(each, slice) or _is_integer(each) for each in indices)
    if not is_known or len(ellipses) > 1:
        raise UnsupportedError(
            "parts of saved tensors are selected by integers, slices and ...",
            key=name,
            found=f"{index!r:.80}",
            remedy="read the whole tensor with get_tensor(), and index that",
        )
    if count > len(shape):
        raise MismatchError(
            "an index has more dimensions than the tensor",
            key=name,
            expected=f"at most {len(shape)}, for the shape ({format_shape(shape)})",
            found=f"{count}",
        )
    whole = [slice(None)] * (len(shape) - count)
    position = ellipses[0] if ellipses else len(indices)
    parts = [*indices[:position], *whole, *indices[position + 1 :]]
    box, inside = [], list[int | slice]()
    for axis, (part, length) in enumerate(zip(parts, shape, strict=True)):
        if isinstance(part, slice):
            selected = range(*part.indices(length))
            first, last = (min(selected[0], selected[-1]), max(selected[0], selected[-1])) if selected else (0, -1)
            box.append((first, last + 1))
            inside.append(slice(None, None, selected.step))
            continue
        if not -length <= part < length:
            raise MismatchError(
                "an index reaches outside the tensor",
                key=name,
                expected=f"from {-length} to {length - 1} in dimension {axis}"
                if length
                else f"no element in dimension {axis}",
                found=part,
            )
        start = int(part) % length
        box.append((start, start + 1))
        inside.append(0)
    return _IndexRange(tuple(box), tuple(inside))


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))
