"""Entries of an index, which tell where the bytes of a tensor are.

::

    entry := 1 dtype int32        the number of the element type
             2 shape Shape        always present; a dimension of length 0 is an empty message
             3 shard_id int32     which data file
             4 offset int64       the first byte in it
             5 size int64         the number of bytes
             6 crc32c fixed32     the masked checksum of the bytes; `strings` and `variants` have theirs
             {7 slices Slice}     the pieces in which the tensor was saved, each under its own key; then 3 to 6 have no meaning
             (1001 element_type string)?      the name of an element type that TensorFlow lacks

Fields are in the order of their numbers, and numbers that are zero are left out. `milepost.bundle.format.messages` has Shape and Slice. Source:
TensorFlow 2.21, ``tensorflow/core/protobuf/tensor_bundle.proto``.

The field 1001 is milepost's own, and TensorFlow skips it. To TensorFlow such a tensor is one of uint8. If an element has more than one
byte, the bytes are the last dimension of the shape::

    complex32[2,3]   dtype uint8, shape [2,3,4], element_type "complex32"

Slices do not have that dimension. So TensorFlow cannot read such a tensor of several bytes an element if it was saved in pieces.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from milepost.bundle.format import strings, variants
from milepost.bundle.format.messages import BundleEntry, Shape
from milepost.bundle.format.slices import box_message, parse_box
from milepost.coding.fields import fixed32_field, fixed32_fields, message_field, number_field, number_fields
from milepost.coding.protobuf import parse
from milepost.coding.varints import Column
from milepost.errors import CorruptCheckpointError, UnsupportedError
from milepost.tensor import DType, TensorSlice, TensorSpec
from milepost.tensor.dtype import STRING, VARIANT

_INVALID: Final = 0
_RESOURCE: Final = 20
_UINT8: Final = DType.of("uint8")
_MOST_DIMENSIONS: Final = 254
"""TensorFlow's limit on the rank of a tensor."""


class Entry(NamedTuple):
    """The place and the meaning of the bytes of a tensor.

    It is a named tuple, because making a frozen dataclass takes three times as long.

    Attributes:
        dtype: Element type.
        shape: Shape of the whole tensor.
        shard: The data file.
        offset: The first byte in it.
        size: The number of bytes.
        crc: Their masked checksum.
        slices: The pieces in which the tensor was saved. If there are any, the four attributes before have no meaning.
    """

    dtype: DType
    shape: tuple[int, ...]
    shard: int = 0
    offset: int = 0
    size: int = 0
    crc: int = 0
    slices: tuple[TensorSlice, ...] = ()

    @property
    def spec(self) -> TensorSpec:
        """Element type and shape."""
        return TensorSpec(self.dtype, self.shape)


def encode(
    dtype: DType,
    shape: tuple[int, ...],
    shard: int = 0,
    offset: int = 0,
    size: int = 0,
    crc: int = 0,
    slices: Iterable[TensorSlice] = (),
) -> bytes:
    """Encodes the attributes of an `Entry`, byte for byte as TensorFlow does.

    Example:
        >>> encode(DType.of("float32"), (2,), offset=7, size=8).hex(" ")
        '08 01 12 04 12 02 08 02 20 07 28 08'
    """
    # Serialized fields may be joined. Encoding type and shape takes longest, so the result is cached for other tensors.
    data = _head(dtype.number or dtype.name, shape) + number_field(b"\x18", shard)
    data += number_field(b"\x20", offset) + number_field(b"\x28", size) + fixed32_field(b"\x35", crc)
    for box in slices:
        data += message_field(b"\x3a", box_message(box).SerializeToString())
    return data


def encode_all(
    specs: Iterable[tuple[DType, tuple[int, ...]]], shard: int, offsets: Column, sizes: Column, crcs: Column
) -> list[bytes]:
    """Encodes the entries of many tensors of a data file, which takes a fraction of the time.

    Example:
        >>> import numpy as np
        >>> offsets, sizes, crcs = np.array([0, 64]), np.array([8, 8]), np.array([1, 2])
        >>> specs = [(DType.of("float32"), (2,)), (DType.of("int64"), ())]
        >>> encode_all(specs, 0, offsets, sizes, crcs)[1] == encode(*specs[1], offset=64, size=8, crc=2)
        True
    """
    in_shard = number_field(b"\x18", shard)
    fields = number_fields(b"\x20", offsets), number_fields(b"\x28", sizes), fixed32_fields(b"\x35", crcs)
    return [
        _head(dtype.number or dtype.name, shape) + in_shard + offset + size + crc
        for (dtype, shape), offset, size, crc in zip(specs, *fields, strict=True)
    ]


def decode(data: bytes) -> Entry:
    """Decodes an entry. `milepost.bundle.format.columns` decodes all entries of an index at once, and leaves those to this function that are unusual.

    Raises:
        CorruptCheckpointError: The data is not an entry, or is inconsistent.
        UnsupportedError: Values of the element type cannot be read.
    """
    message = parse(BundleEntry, data, what="an entry of the index")
    spec, least = spec_of(message.dtype, message.shape.SerializeToString(), message.element_type)
    if message.slices:
        return Entry(spec.dtype, spec.shape, slices=tuple([parse_box(piece, spec.shape) for piece in message.slices]))
    shard, offset, size = message.shard_id, message.offset, message.size
    if size != least and (size < least or not spec.dtype.is_bytes):
        raise CorruptCheckpointError(
            "an entry whose size does not fit its shape",
            expected=f"{least} bytes{' or more' if spec.dtype.is_bytes else ''} for {spec}",
            found=f"{size} bytes",
        )
    if shard < 0 or offset < 0:
        raise CorruptCheckpointError("an entry for a negative place", found=f"shard {shard}, offset {offset}")
    return Entry(spec.dtype, spec.shape, shard, offset, size, message.crc32c)


@lru_cache(maxsize=4096)  # a checkpoint of many tensors has few types and shapes
def spec_of(dtype: int, shape: bytes, element_type: bytes) -> tuple[TensorSpec, int]:
    """Type and shape in an entry, and the smallest size in bytes of so many elements. For numbers it is the exact size.

    Args:
        dtype: The field of this name, as those below.
        shape: The field, serialized.
        element_type: The field.

    Raises:
        CorruptCheckpointError: No stored tensor can have such a type and shape.
        UnsupportedError: Values of the element type cannot be read.
    """
    spec = TensorSpec(dtype_of(dtype), shape_of(Shape.FromString(shape)))
    if element_type:
        spec = _named(spec, element_type)
    elif spec.dtype is STRING:
        return spec, strings.least_size(spec.size)
    elif spec.dtype is VARIANT:
        return spec, variants.least_size(spec.size)
    return spec, spec.nbytes


def shape_of(message: Any) -> tuple[int, ...]:
    """The shape in a ``TensorShapeProto``.

    Raises:
        CorruptCheckpointError: No stored tensor can have the shape.
    """
    shape = tuple(dimension.size for dimension in message.dim)
    if message.unknown_rank or len(shape) > _MOST_DIMENSIONS or min(shape, default=0) < 0:
        raise CorruptCheckpointError(
            "an entry whose shape is not that of a tensor",
            expected=f"up to {_MOST_DIMENSIONS} dimensions, none negative",
            found="unknown rank" if message.unknown_rank else f"{len(shape)} dimensions, least {min(shape)}",
        )
    return shape


def dtype_of(number: int) -> DType:
    """The element type of a stored tensor.

    Raises:
        CorruptCheckpointError: The number is that of no type.
        UnsupportedError: Values of this type cannot be read.
    """
    if number == _INVALID:
        raise CorruptCheckpointError("an entry without an element type")
    if number == _RESOURCE:
        raise UnsupportedError(
            "a resource is a handle into the process that saved it; it has no value to read",
            found=f"element type {number}, resource",
            remedy="read the other keys of this checkpoint",
        )
    return DType.from_number(number)


def _width_of(dtype: DType) -> tuple[int, ...]:
    """The last dimension of a tensor as TensorFlow sees it, which is the bytes of an element; empty if it has no such dimension."""
    return () if dtype.number or dtype.itemsize == 1 else (dtype.itemsize,)


@lru_cache(maxsize=4096)
def _head(dtype: int | str, shape: tuple[int, ...]) -> bytes:
    """Type and shape. The type is given by its number, or by its name if it has none; these are hashed faster than a `DType`."""
    message = BundleEntry()
    message.shape.SetInParent()
    if isinstance(dtype, str):
        message.element_type = dtype.encode()
        shape += _width_of(DType.named(dtype))
    message.dtype = dtype if isinstance(dtype, int) else _UINT8.number
    for length in shape:
        message.shape.dim.add(size=length)
    return message.SerializeToString()  # type: ignore[no-any-return]


def _named(stored: TensorSpec, name: bytes) -> TensorSpec:
    """Type and shape of a tensor whose elements are bytes to TensorFlow."""
    dtype = DType.named(name.decode("utf-8", "replace"))
    width = _width_of(dtype)
    if stored.dtype is not _UINT8 or stored.shape[len(stored.shape) - len(width) :] != width:
        raise CorruptCheckpointError(
            "an entry whose shape does not fit its element type",
            expected=f"uint8, the last dimension {width[0] if width else 'of any length'}, for {dtype}",
            found=stored,
        )
    return TensorSpec(dtype, stored.shape[: len(stored.shape) - len(width)])
