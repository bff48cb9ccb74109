"""NumPy arrays and scalars as values.

A writable array is restored in place, whatever its strides. A read-only array or a scalar is replaced in the object that holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from milepost.errors import MismatchError, UnsupportedError
from milepost.graph.adapter import Adapter, Array, Value, register
from milepost.graph.keys import VARIABLE_VALUE
from milepost.graph.omissions import Omission
from milepost.graph.variable import as_array
from milepost.tensor import DType, TensorSpec

_NUMBERS: Final = {dtype.numpy: dtype for dtype in DType.all() if not dtype.is_bytes}
"""The element types that files hold as they are in memory, by those of NumPy."""


class ArrayAdapter(Adapter):
    """`numpy.ndarray`: one value."""

    leaf = True
    array_type = "numpy.ndarray"

    def handles(self, kind: type) -> bool:
        return issubclass(kind, np.ndarray)

    def is_value(self, obj: Array) -> bool:
        return True

    def is_new_array(self, obj: Array) -> bool:
        return type(obj) is np.ndarray and obj.dtype in _NUMBERS

    def new_array(self, spec: TensorSpec) -> Array:
        return np.empty(spec.shape, spec.dtype.numpy)

    def tracks(self, obj: Array) -> bool:
        return (type(obj) is np.ndarray and obj.dtype in _NUMBERS) or self.omission(obj) is None

    def omission(self, obj: Array) -> Omission | None:
        if isinstance(obj, np.ma.MaskedArray):
            return Omission("the mask of a masked array would be lost", "hold its data and its mask as two arrays")
        try:
            dtype = DType.of(obj.dtype)
        except UnsupportedError:
            return Omission(f"an array of {obj.dtype} has no TensorFlow element type")
        if dtype.is_bytes and not all(isinstance(each, (bytes, str)) for each in obj.reshape(-1).tolist()):
            return Omission("an array of objects that are not all text or bytes")
        return None

    def values(self, obj: Array) -> Sequence[Value]:
        dtype = _NUMBERS.get(obj.dtype)
        if dtype is not None:
            return (Value(VARIABLE_VALUE, dtype, obj.shape, obj, obj if obj.flags.carray else None),)
        dtype = DType.of(obj.dtype)
        source = partial(as_array, obj) if dtype.is_bytes else obj  # in the other byte order if it is no text
        return (Value(VARIABLE_VALUE, dtype, obj.shape, source),)

    def may_refuse(self, obj: Array) -> bool:
        return bool(obj.dtype.kind == "U")  # the saved bytes may not be text

    def assign(self, obj: Array, arrays: Mapping[str, Array]) -> Array:
        array = arrays[VARIABLE_VALUE]
        if array is obj:
            return obj
        if obj.dtype.kind == "U":
            try:
                array = np.array([each.decode() for each in array.reshape(-1).tolist()]).reshape(array.shape)
            except UnicodeDecodeError as error:
                raise MismatchError(
                    "an array of text cannot hold these bytes",
                    expected="UTF-8",
                    found=repr(error.object)[:80],
                    remedy="restore into an array of bytes, of dtype 'S'",
                ) from error
        if not obj.flags.writeable or (array.dtype.itemsize > obj.dtype.itemsize and obj.dtype.kind in "SU"):
            successor = array.astype(obj.dtype.kind if obj.dtype.kind in "SU" else obj.dtype, copy=False)
            successor.flags.writeable = obj.flags.writeable
            return successor
        obj[...] = array
        return obj


class ScalarAdapter(Adapter):
    """NumPy scalars such as ``numpy.float32(1)``: one value without dimensions."""

    leaf = True

    def handles(self, kind: type) -> bool:
        return issubclass(kind, np.generic)

    def tracks(self, obj: np.generic) -> bool:
        return obj.dtype in _NUMBERS or self.omission(obj) is None

    def omission(self, obj: np.generic) -> Omission | None:
        try:
            DType.of(obj.dtype)
        except UnsupportedError:
            return Omission(f"a scalar of {obj.dtype} has no TensorFlow element type")
        return None

    def values(self, obj: np.generic) -> Sequence[Value]:
        return (Value(VARIABLE_VALUE, DType.of(obj.dtype), (), lambda: as_array(obj)),)

    def assign(self, obj: np.generic, arrays: Mapping[str, Array]) -> Any:
        element: Any = arrays[VARIABLE_VALUE][()]
        return type(obj)(element.decode() if isinstance(obj, np.str_) else element)


register(ArrayAdapter())
register(ScalarAdapter())
