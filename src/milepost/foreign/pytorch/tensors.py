"""The tensors in PyTorch files: their element types, the storages that hold their elements, and which elements are theirs.

Source: PyTorch 2.13, ``torch/_utils.py``, ``torch/storage.py``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.foreign.opaque import Name
from milepost.foreign.shapes import MOST_DIMENSIONS, are_counts, is_count
from milepost.foreign.stored import Stored
from milepost.tensor import DType, TensorSpec

_MOST_REPEATED: Final = 64 << 20
"""The most bytes by which a tensor may exceed its storage, if one stored element is several elements of the tensor."""

_INTEGERS: Final = {int}

UNTYPED: Final = "UntypedStorage"
"""The class of storages without an element type."""
STORAGES: Final = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    UNTYPED: "uint8",
    "QInt8Storage": "int8",
    "QUInt8Storage": "uint8",
    "QInt32Storage": "int32",
    "QUInt4x2Storage": "uint8",
    "QUInt2x4Storage": "uint8",
}
"""The classes of storages, each with the element type of its bytes."""
DTYPES: Final = {
    **{name: name for name in STORAGES.values()},
    **{name: name for name in ("uint16", "uint32", "uint64")},
    **{f"float8_{form}": f"float8_{form}" for form in ("e5m2", "e4m3fn", "e5m2fnuz", "e4m3fnuz", "e8m0fnu")},
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)},
    **{name: name for name in ("complex32", "float4_e2m1fn_x2", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2")},
    "chalf": "complex32",
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "cfloat": "complex64",
    "cdouble": "complex128",
}
"""PyTorch's names of element types, each with milepost's name."""


@dataclass(slots=True, unsafe_hash=True)  # never changed, but not frozen: to make a frozen one takes twice as long
class TorchStorage:
    """A storage of PyTorch: a run of bytes in a file that holds the elements of tensors.

    Attributes:
        key: Its name in the file.
        dtype: PyTorch's name of the element type.
        nbytes: Its length.
        start: Its first byte, if it is part of a longer storage.
    """

    key: str
    dtype: str
    nbytes: int
    start: int = 0

    def part(self, first: Any, length: Any) -> TorchStorage:
        """A storage of some of its elements."""
        width = element_size(self.dtype)
        if not is_count(first) or not is_count(length) or (first + length) * width > self.nbytes:
            raise ValueError("a storage that reaches beyond the storage it is a part of")
        return TorchStorage(self.key, self.dtype, length * width, self.start + first * width)


@dataclass(slots=True, unsafe_hash=True)  # not frozen, as `TorchStorage` is not
class View:
    """The elements of a storage that a tensor has.

    Attributes:
        storage: The storage.
        offset: The position of the first element, in bytes.
        strides: Bytes from one element to the next in each dimension; None if these are the usual ones, and the elements follow each other.
        flags: `CONJUGATED`, `NEGATED`, both or neither.
    """

    storage: TorchStorage
    offset: int
    strides: tuple[int, ...] | None
    flags: frozenset[str] = frozenset()


CONJUGATED: Final = "conj"
"""The flag of a tensor whose values are the conjugates of those in its storage."""
NEGATED: Final = "neg"
"""The flag of a tensor whose values are the negatives of those in its storage."""
_SIGNED: Final = frozenset({"float16", "bfloat16", "float32", "float64"})
"""Real element types of which PyTorch makes views that are negated."""


def flagged(stored: Stored, flags: frozenset[str]) -> Stored:
    """A tensor whose values are the conjugates or negatives of those in its storage.

    Raises:
        UnsupportedError: It has another flag, or an element type for which PyTorch has none.
    """
    name = stored.spec.dtype.name
    if not (flags <= {CONJUGATED, NEGATED} if name.startswith("complex") else flags <= {NEGATED} and name in _SIGNED):
        raise UnsupportedError(
            "the values of this tensor are computed from those in the file in a way that milepost does not know",
            found=f"{', '.join(sorted(flags)):.200}, of {name}",
            remedy="call resolve_conj() and resolve_neg() on it, and save the result",
        )
    view: View = stored.place
    return Stored(stored.spec, View(view.storage, view.offset, view.strides, flags))


def strides_of(stored: Stored) -> tuple[int, ...] | None:
    """The strides of a tensor in elements, if it had others than new tensors have, and the file is one that has strides."""
    if not isinstance(stored.place, View) or stored.place.strides is None:
        return None
    return tuple(step // stored.spec.dtype.itemsize for step in stored.place.strides)


@functools.cache
def element_size(dtype: str) -> int:
    """The bytes of an element of a type.

    Args:
        dtype: PyTorch's name of the type.

    Raises:
        UnsupportedError: milepost cannot read tensors of this type.
    """
    return dtype_of(dtype).itemsize


def dtype_of(dtype: str) -> DType:
    """milepost's element type of PyTorch's; arguments and errors are those of `element_size`."""
    if dtype in DTYPES:
        return DType.of(DTYPES[dtype])
    raise UnsupportedError(
        "milepost cannot read PyTorch tensors of this element type",
        found=f"torch.{dtype:.80}",
        expected="one of " + ", ".join(sorted(DTYPES)),
        remedy="load the file with torch.load, convert the tensor, and save it again",
    )


def storage_of(kind: Any, key: Any, count: Any) -> TorchStorage:
    """The storage that a persistent id names.

    Args:
        kind: The class of the storage, or its element type.
        key: Its name in the file.
        count: How many elements it has.

    Raises:
        UnsupportedError: milepost cannot read storages of this kind.
    """
    name = kind.name if isinstance(kind, Name) and kind.module in ("torch", "torch.storage", "torch.cuda") else None
    if name not in STORAGES or not isinstance(key, str) or not is_count(count):
        raise unknown_storage(kind if isinstance(kind, Name) else Name("builtins", type(kind).__name__))
    dtype = STORAGES[name]
    return TorchStorage(key, dtype, count * element_size(dtype))


def unknown_storage(kind: Name) -> UnsupportedError:
    """The error for a storage of a kind that milepost cannot read."""
    return UnsupportedError(
        "milepost cannot read PyTorch storages of this kind",
        found=f"{kind!s:.200}",
        expected=", ".join(STORAGES),
        remedy="load the file with torch.load, convert the tensor, and save it again",
    )


def whole(storage: TorchStorage) -> Stored:
    """A storage as a tensor of one dimension."""
    width = element_size(storage.dtype)
    return tensor(storage, storage.dtype, 0, (storage.nbytes // width,), (1,))


def tensor(storage: TorchStorage, dtype: str, offset: Any, size: Any, stride: Any) -> Stored:
    """A tensor whose elements are in a storage.

    Args:
        storage: The storage.
        dtype: PyTorch's name of the element type.
        offset: How many elements of the storage come before the first of the tensor.
        size: The shape.
        stride: For each dimension, how many elements of the storage lie between one element of the tensor and the next.

    Raises:
        CorruptCheckpointError: The tensor reaches beyond its storage.
        UnsupportedError: milepost cannot read tensors of this type, or the tensor repeats too many elements.
        ValueError: The shape, the strides or the offset are impossible.
    """
    width = element_size(dtype)
    layout = _layout_of(dtype, size, stride) if _is_short(size) and _is_short(stride) else None
    if layout is None or not is_count(offset):
        raise ValueError("a tensor with an impossible shape")
    first = offset * width
    if layout.reach and first + layout.reach > storage.nbytes:
        raise CorruptCheckpointError(
            "a tensor reaches beyond its storage",
            expected=f"at least {first + layout.reach} bytes for a tensor of shape {tuple(size)}",
            found=f"{storage.nbytes} bytes",
        )
    if layout.nbytes > storage.nbytes + _MOST_REPEATED:
        raise UnsupportedError(
            "this tensor has far more elements than are stored, because it repeats them",
            expected=f"at most {_MOST_REPEATED >> 20} MiB more than is stored",
            found=f"shape {tuple(size)}, of {storage.nbytes} stored bytes",
            remedy="save its contiguous() copy",
        )
    return Stored(layout.spec, View(storage, storage.start + first, layout.strides))


def _is_short(value: Any) -> bool:
    """Whether a value is a tuple of a few integers, which can be looked up in a cache. The hash of any other tuple may take very long."""
    return isinstance(value, tuple) and len(value) <= MOST_DIMENSIONS and set(map(type, value)) <= _INTEGERS


class _Layout(NamedTuple):
    """What tensors of one element type, shape and strides have in common.

    Attributes:
        spec: The spec.
        reach: From the first byte of the first element to the end of the last one; 0 if there are no elements.
        nbytes: The bytes of all elements.
        strides: As in `View`.
    """

    spec: TensorSpec
    reach: int
    nbytes: int
    strides: tuple[int, ...] | None


@functools.lru_cache(maxsize=4096)
def _layout_of(dtype: str, size: tuple[int, ...], stride: tuple[int, ...]) -> _Layout | None:
    """The layout of tensors; None if it is impossible. Most tensors of a file have one of a few.

    Args:
        dtype: PyTorch's name of the element type.
        size: The shape, of integers.
        stride: The strides in elements.
    """
    width = element_size(dtype)
    if not (are_counts(size, tuple) and are_counts(stride, tuple)) or len(size) != len(stride):
        return None
    count = math.prod(size)
    last = sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    usual = count == 0 or _are_usual(size, stride)
    strides = None if usual else tuple(step * width for step in stride)
    return _Layout(TensorSpec(dtype_of(dtype), size), (last + 1) * width if count else 0, count * width, strides)


def _are_usual(size: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether these are the strides that PyTorch gives to a new tensor. Libraries of linear algebra may round differently with others, also
    in a dimension of one element."""
    return stride == usual_strides(size)


def usual_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of a new tensor of a shape."""
    return tuple(math.prod(shape[position + 1 :]) for position in range(len(shape)))
